// Births and ends of threads, processes and programs (clone(2), execve(2), ptrace(2) events).
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "base/brief_file.h"
#include "base/limits.h"
#include "base/private_files.h"
#include "base/procfs.h"
#include "base/text.h"
#include "checkpoint/address_space.h"
#include "checkpoint/stub.h"
#include "supervisor/record/exit_status.h"
#include "supervisor/record/front.h"
#include "supervisor/record/interrupts.h"
#include "supervisor/record/recorder.h"
#include "supervisor/record/robust_futexes.h"
#include "supervisor/tier/births.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr uint64_t kArchSetCpuid = 0x1012;
constexpr size_t kMaxCommand = 200, kMaxArguments = 4096;

// Where the kernel let the heap begin (proc_pid_stat(5), start_brk); right after execve that is the current break.
Address start_brk(pid_t pid) {
  constexpr int kStartBrk = 47;
  return parse_number(proc_stat_field(pid, kStartBrk)).value_or(0);
}

// What the kernel puts on a new program's stack (System V ABI for x86-64, "Process Initialization").
struct InitialStack {
  std::vector<uint64_t> words;  // argc, argv, NULL, envp, NULL, the auxiliary vector; empty if it has another form
  size_t environment = 0;       // indexes of the first words
  size_t auxiliary = 0;

  static InitialStack read(const Memory& memory, Address stack) {
    constexpr size_t kUsual = 512, kMost = 1 << 20;
    InitialStack out;
    for (size_t count = kUsual; count <= kMost; count *= 8) {
      out.words.resize(count);
      out.words.resize(memory.read_some(stack, out.words.data(), count * sizeof(uint64_t)) / sizeof(uint64_t));
      if (out.parse()) return out;
      if (out.words.size() < count) break;
    }
    out.words.clear();
    return out;
  }

  // The program and its arguments, for listings; the program's name alone is used to name units.
  std::string command(const Memory& memory) const {
    if (words.empty() || words[0] == 0) return {};
    const Address first = words[1], end = words[environment] ? words[environment] : first + kMaxCommand;
    std::string text(std::min<uint64_t>(end - first, kMaxArguments), '\0');
    text.resize(memory.read_some(first, text.data(), text.size()));
    while (!text.empty() && text.back() == '\0') text.pop_back();
    const size_t slash = text.substr(0, text.find('\0')).rfind('/');
    if (slash != std::string::npos) text.erase(0, slash + 1);
    std::replace(text.begin(), text.end(), '\0', ' ');
    if (text.size() > kMaxCommand) text.resize(kMaxCommand);
    return text;
  }

  // Takes the vDSO away from the program: its clock functions read the time without a syscall. Returns where it is.
  Address hide_vdso(const Memory& memory, Address stack) const {
    for (size_t at = auxiliary; at + 1 < words.size() && words[at] != AT_NULL; at += 2) {
      if (words[at] != AT_SYSINFO_EHDR) continue;
      memory.put(stack + at * sizeof(uint64_t), uint64_t{AT_IGNORE});
      return words[at + 1];
    }
    return 0;
  }

 private:
  bool parse() {
    if (words.empty()) return false;
    const auto end_of_list = [&](size_t from) {
      if (from > words.size()) return words.size();
      return static_cast<size_t>(std::find(words.begin() + static_cast<ptrdiff_t>(from), words.end(), 0) -
                                 words.begin());
    };
    environment = end_of_list(1) + 1;
    auxiliary = end_of_list(environment) + 1;
    for (size_t at = auxiliary; at + 1 < words.size(); at += 2) {
      if (words[at] == AT_NULL) return true;
    }
    return false;
  }
};

}  // namespace

Result<void> Recorder::launch(const std::string& path, const std::vector<std::string>& arguments) {
  int go[2];
  if (pipe2(go, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  const Fd read_end(go[0]), write_end(go[1]);
  std::vector<ExactCall> calls{fatal_call(true), fatal_call(false)};
  std::vector<UntracedSite> untraced;
  if (arena_) {
    const auto loaders = arena_->loader_calls();
    calls.insert(calls.end(), loaders.begin(), loaders.end());
    untraced = arena_->untraced();
  }
  const std::vector<sock_filter> filter = seccomp_filter(untraced, arena_ ? arena_->header().boundary : 0, calls);
  const sock_fprog program{static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string failed = "redrive: " + path + ": ";
  placement_.stay_home();
  root_ = fork();
  if (root_ < 0) return errno_error("cannot fork");
  if (root_ == 0) {
    ::close(write_end.get());  // the recorder's end is the end of the pipe
    char byte = 0;
    const bool told = read(read_end.get(), &byte, 1) == 1;
    give_back_interrupts();
    give_back_umask();
    give_back_limits();
    if (told && prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0) {
      execve(path.c_str(), argv.data(), environ);
      const char* const why = strerrordesc_np(errno);
      const iovec line[] = {{const_cast<char*>(failed.data()), failed.size()},
                            {const_cast<char*>(why), std::strlen(why)},
                            {const_cast<char*>("\n"), 1}};
      static_cast<void>(writev(STDERR_FILENO, line, std::size(line)) < 0);
    }
    _exit(static_cast<int>(kCannotExecute));
  }
  if (const auto seized = tracer_.seize(root_); !seized) {
    tracer_.send(root_, SIGKILL);
    tracer_.wait(root_);
    return seized.error();
  }
  Unit& unit = add_unit({}, root_);
  Thread& thread = add_thread(add_process(unit, root_), root_);
  thread.confinement = Confinement(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
  unit.baton.give_to(thread);
  thread.processors = processors_.all();
  if (write(write_end.get(), "g", 1) != 1) return errno_error("cannot start the program");
  close_inherited();
  return {};
}

Unit& Recorder::add_unit(EventRef parent, pid_t pid) {
  const UnitId id = next_unit_++;
  auto& unit = units_[id] = std::make_unique<Unit>(tracer_, writer_, id);
  unit->record = UnitRecord{id, pid, parent, {}};
  writer_.add(unit->record);
  return *unit;
}

Process& Recorder::add_process(Unit& unit, pid_t pid, const Process* sharer) {
  auto process = std::make_unique<Process>();
  process->serial = unit.next_process++;
  process->pid = pid;
  process->unit = &unit;
  process->fds = std::make_shared<FdCache>();
  process->pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  process->memory_id = sharer ? sharer->memory_id : ++memories_;
  process->descriptors = sharer ? sharer->descriptors : std::make_shared<LocalDescriptors>();
  process->shared_mappings = sharer ? sharer->shared_mappings : std::make_shared<SharedMappings>();
  if (sharer) {
    process->memory = Memory::shared(pid, sharer->memory);
  } else if (auto memory = Memory::open(pid)) {
    process->memory = std::move(*memory);
  }
  unit.clock.add(pid);
  unit.processes.push_back(std::move(process));
  return *unit.processes.back();
}

Thread& Recorder::add_thread(Process& process, pid_t tid) {
  auto thread = std::make_unique<Thread>();
  thread->tid = tid;
  thread->serial = process.unit->next_thread++;
  thread->process = &process;
  ++process.threads;
  process.unit->threads[thread->serial] = thread.get();
  return *(threads_[tid] = std::move(thread));
}

// The kernel would not tell of a child that is born with CLONE_UNTRACED, so it makes the child without. A program that
// nobody traces, as far as it knows, sees no difference.
void Recorder::hide_untraced(Thread& thread) {
  const uint64_t flags = birth_request(*thread.row, thread.args, thread.process->memory).flags;
  if (!(flags & CLONE_UNTRACED)) return;
  thread.hides_untraced = true;
  const uint64_t others = flags & ~uint64_t{CLONE_UNTRACED};
  if (thread.row->special == Special::clone3) {
    thread.process->memory.put(thread.args[0] + offsetof(clone_args, flags), others);
  } else {
    user_regs_struct regs = thread.entry;
    regs.rdi = others;
    set_regs(thread, regs);
  }
}

// In the argument of a clone3(2) that the kernel has read, in the memory of the parent or of its child.
void Recorder::show_untraced(const Thread& parent, const Memory& memory) {
  const Address at = parent.args[0] + offsetof(clone_args, flags);
  uint64_t flags = 0;
  if (memory.get(at, flags)) memory.put(at, flags | CLONE_UNTRACED);
}

void Recorder::born(Thread& parent, pid_t tid) {
  Process& process = *parent.process;
  Unit& unit = *process.unit;
  const BirthRequest request = birth_request(*parent.row, parent.args, process.memory);
  const uint64_t flags = request.flags;
  Event* event = unit.log.open_of(parent.serial);
  CHECK(event);
  event->result = tid;
  Thread* child = nullptr;
  if (flags & CLONE_THREAD) {
    child = &add_thread(process, tid);
    event->child_thread = child->serial;
  } else {
    const bool same_unit = (flags & CLONE_VM) || process.shares_memory;
    const EventRef birth{unit.id, unit.log.next() - 1};
    Unit& home = same_unit ? unit : add_unit(birth, tid);
    Process& made = add_process(home, tid, flags & CLONE_VM ? &process : nullptr);
    if (flags & CLONE_FILES) {
      made.fds = process.fds;
      made.fds->in_several_memories |= !(flags & CLONE_VM);
      if (process.gate) process.gate->use_table(nullptr);
    } else {
      made.fds->known = process.fds->known;
      // What one of them connects, the other one is connected to.
      if (process.gate) process.gate->forget_fresh(0, gate::kDescriptors - 1);
    }
    made.brk = process.brk;
    if (!(flags & CLONE_VM)) *made.descriptors = *process.descriptors;
    made.vdso = process.vdso;
    made.shares_memory = process.shares_memory;
    made.objects = process.objects;
    made.private_views = process.private_views;
    made.opens_memory = process.opens_memory;
    made.maps_growing = process.maps_growing;
    made.borrows_memory = flags & CLONE_VM;
    if (flags & CLONE_VM) {
      made.gate = process.gate;
    } else if (process.gate) {
      made.inherited = std::make_shared<RecordedGate>(*arena_, *process.gate, &home);
    }
    made.command = process.command;
    made.segv = process.segv;
    made.ill = process.ill;
    made.cpuid_sites = process.cpuid_sites;
    child = &add_thread(made, tid);
    if (!(flags & CLONE_VM)) note_pending_outputs(parent, made.memory, event->child_writes);
    if (flags & CLONE_CHILD_SETTID && (flags & CLONE_NEWPID || forks_into_namespace(process.pid))) {
      // A replay writes the number that the parent is told; the child has another one in its own namespace.
      const int32_t own = pid_in_own_namespace(tid);
      const auto* bytes = reinterpret_cast<const uint8_t*>(&own);
      event->child_writes.push_back(
          {request.child_tid, sizeof own, MemoryWrite::Kind::data, Bytes(bytes, bytes + sizeof own)});
    }
    if (same_unit) {
      event->child_thread = child->serial;
      if (!(flags & CLONE_VM)) made.stays = Join{unit.id, 0, unit.log.next(), tid, shared_by(process)};
    } else {
      event->child_unit = home.id;
      if (unit.place.away) placement_.send(tid, false);
      begin_interval(home, CheckpointKind::fork, made, 0);
      const uint64_t at_ns = unit.clock.interval_ns();
      event->send = Send{0, 0, at_ns};
      child->image_at_birth = messages_.keeps_birth(unit.id, at_ns, home.id);
    }
  }
  if (parent.hides_untraced && parent.row->special == Special::clone3) {
    parent.hides_untraced = false;
    show_untraced(parent, process.memory);
    if (!(flags & CLONE_VM)) show_untraced(parent, child->process->memory);
  }
  child->hides_untraced = parent.hides_untraced;
  child->confinement = parent.confinement;
  if (flags & CLONE_CHILD_CLEARTID) child->clear_tid = request.child_tid;
  child->blocked = parent.blocked;
  child->processors = parent.processors;
  if (flags & CLONE_VFORK) {
    parent.run = Thread::Run::blocked;
    parent.xstate = tracer_.get_xstate(parent.tid);
  }
  if (flags & CLONE_CHILD_SETTID && child->process->unit == &unit) let_write_number(tid);
  resume(parent, Resume::to_syscall_exit);
  if (flags & CLONE_VFORK) give_up_baton(unit);
  if (early_.erase(tid)) take_or_queue(*child, Thread::Stop::start);
}

// A child writes its own number when the kernel first runs it, right before its first stop (schedule_tail(),
// kernel/sched/core.c). Who shares that memory must find it there after the birth, as in a replay. So the parent stays
// in the kernel until the child has stopped, or was killed; what the child has come to is handled in its turn.
void Recorder::let_write_number(pid_t child) {
  if (!early_.contains(child)) stops_.await(child);
}

// Calls of other threads that have not come to their exits may have written into the memory that a child has just got,
// or not: a replay, which writes at their exits, must know.
void Recorder::note_pending_outputs(const Thread& parent, const Memory& memory, std::vector<MemoryWrite>& writes) {
  constexpr uint64_t kMost = 16 << 20;  // of one buffer
  const auto note = [&](Address address, uint64_t length) {
    Bytes data(std::min(length, kMost));
    data.resize(memory.read_some(address, data.data(), data.size()));
    if (!data.empty()) writes.push_back({address, data.size(), MemoryWrite::Kind::data, std::move(data)});
  };
  for (const auto& [serial, thread] : parent.process->unit->threads) {
    const bool pending = thread->run == Thread::Run::blocked ||
                         (thread->run == Thread::Run::ready && thread->stop == Thread::Stop::exit);
    const bool same_memory = thread->process->memory_id == parent.process->memory_id;
    if (thread == &parent || !same_memory || !pending || !thread->row) continue;
    for (const Span& span : possible_outputs(thread->output_args, thread->sizes)) note(span.address, span.length);
    // What was left of its timeout is no output: the child finds the program's own.
    if (const auto& own = thread->timeout.own()) {
      memory.put(own->at, own->timeout);
      note(own->at, sizeof own->timeout);
    }
  }
}

// What the kernel tells the parent through memory.
void Recorder::note_birth(const Thread& parent, const Memory& memory, Event& event) {
  const BirthRequest request = birth_request(*parent.row, parent.args, memory);
  const auto note = [&](uint64_t flag, Address address) {
    MemoryWrite write{address, sizeof(int32_t), MemoryWrite::Kind::data, Bytes(sizeof(int32_t))};
    if ((request.flags & flag) && memory.read(address, write.data.data(), write.length)) {
      event.writes.push_back(std::move(write));
    }
  };
  note(CLONE_PARENT_SETTID, request.parent_tid);
  note(CLONE_PIDFD, request.pidfd);
}

void Recorder::executed(pid_t pid, pid_t former_tid) {
  Thread* found = find(former_tid);
  if (!found) return;
  Thread& thread = *found;
  Process& process = *thread.process;
  Unit& former_unit = *process.unit;
  // The other threads are gone; the caller takes over the leader's id.
  std::vector<Thread*> others;
  for (const auto& [serial, other] : former_unit.threads) {
    if (other->process == &process && other != &thread) others.push_back(other);
  }
  for (Thread* other : others) remove_thread(*other);
  if (former_tid != pid) {
    auto node = threads_.extract(former_tid);
    node.key() = pid;
    node.mapped()->tid = pid;
    threads_.insert(std::move(node));
  }
  if (former_unit.in_interval) {
    const EventIndex number =
        former_unit.log.open_of(thread.serial) ? former_unit.log.next() - 1 : former_unit.log.next();
    if (!former_unit.log.open_of(thread.serial)) former_unit.end_state.clear();  // others ran meanwhile
    Event& done = former_unit.log.closing(thread.serial, static_cast<int32_t>(thread.entry.orig_rax));
    if (former_unit.processes.size() > 1) {
      // A vfork child, or a process that shared memory, leaves: its new program is a unit of its own.
      Unit& unit = add_unit({former_unit.id, number}, pid);
      done.child_unit = unit.id;
      former_unit.log.close(false);
      former_unit.clock.cpu_ns();  // asked for the last time while the process is there
      unit.clock.take(former_unit.clock, process.pid);
      const auto owned = std::find_if(former_unit.processes.begin(), former_unit.processes.end(),
                                      [&](const auto& p) { return p.get() == &process; });
      former_unit.threads.erase(thread.serial);
      unit.processes.push_back(std::move(*owned));
      former_unit.processes.erase(owned);
      process.unit = &unit;
      process.serial = unit.next_process++;
      thread.serial = unit.next_thread++;
      unit.threads[thread.serial] = &thread;
      unit.baton.give_to(thread);
      if (former_unit.baton.holder() == &thread) give_up_baton(former_unit);
    } else {
      former_unit.log.close(false);
      end_interval(former_unit);
      former_unit.baton.give_to(thread);
    }
  }
  process.fds = std::make_shared<FdCache>();
  process.shares_memory = process.borrows_memory = false;
  process.objects.clear();
  process.private_views.clear();
  process.stays.reset();
  process.shared_mappings = std::make_shared<SharedMappings>();
  process.maps_growing = false;
  process.cpuid_sites.clear();
  process.written.clear();
  process.gate.reset();
  process.inherited.reset();
  if (auto memory = Memory::open(pid)) process.memory = std::move(*memory);
  process.memory_id = ++memories_;
  process.descriptors = std::make_shared<LocalDescriptors>();
  thread.clear_tid = 0;
  thread.signals.forget_all();
  if (former_unit.place.away) placement_.send(pid, false);
  process.unit->place = {};
  begin_program(thread);
}

// At the stop that reports a successful execve: nothing of the new program has run. The kernel is still to put its
// result into rax.
void Recorder::begin_program(Thread& thread) {
  Process& process = *thread.process;
  Unit& unit = *process.unit;
  user_regs_struct regs;
  if (!get_regs(thread, regs)) return;
  regs.rax = 0;
  const auto stack = InitialStack::read(process.memory, regs.rsp);
  process.command = stack.command(process.memory);
  const auto found = read_mappings(process.pid);
  const std::vector<Mapping> mappings = found ? *found : std::vector<Mapping>();
  if (!found) add_unsure(unit, "what it has mapped could not be read: " + found.error().message);
  if (const Address vdso = stack.hide_vdso(process.memory, regs.rsp)) {
    constexpr Address kMost = 4 * kPageSize;
    process.vdso = {vdso, vdso + kMost};
    if (arena_ && !map_gate(thread, regs, vdso, mappings)) return;
    // execve switched cpuid faulting off.
    const Address site = limits_.cpuid_traps ? vdso_syscall(process.memory, vdso) : 0;
    if (site && !calls_.call_at(caller_of(thread), site, regs, SYS_arch_prctl, {kArchSetCpuid, 0})) return;
    regs.orig_rax = ~0ull;
    tracer_.set_regs(thread.tid, regs);
  }
  if (!process.gate) process.brk = start_brk(process.pid);
  MappedFiles files(process.pid);
  const std::string executable = proc_path(process.pid, "exe");
  struct stat info {};
  const bool has_executable = stat(executable.c_str(), &info) == 0;
  if (has_executable) files.add(executable, info);
  for (const auto& mapping : mappings) {
    if (PatchPlans::is_code(mapping)) replace_cpuid(process, mapping, files.of(mapping), nullptr);
  }
  inherit_signals(thread);
  begin_interval(unit, CheckpointKind::exec, process, 0);
  if (has_executable && would_gain(process.pid, info)) {
    const char* const kind = info.st_mode & S_ISUID ? "set-user-ID" : "set-group-ID";
    count_refusal(unit, fmt::format("the privileges of {} program {}", kind, process.command), "ran without them",
                  false);
  }
  if (has_executable && process.gate) process.gate->program = &plans_.program(version_of(info));
  KnownMappings known{mappings, files};
  store_now(unit, thread, &regs, found ? &known : nullptr);
  for (const auto& mapping : mappings) {
    const MappedFile* file = PatchPlans::is_code(mapping) ? files.of(mapping) : nullptr;
    if (file) apply_plan(process, mapping, *file);
  }
  place_program(unit);
  resume_user(thread, regs);
}

void Recorder::remove_thread(Thread& thread) {
  Process& process = *thread.process;
  Unit& unit = *process.unit;
  unit.threads.erase(thread.serial);
  unit.baton.forget(thread);
  for (const auto& [id, other] : units_) std::erase(other->writers, &thread);
  --process.threads;
  threads_.erase(thread.tid);
}

// Where processes share memory, others see what the kernel does when a thread is killed, so its end is to be reported
// before the kernel takes its memory. The thread is stopped.
void Recorder::ask_for_exit(Thread& thread) {
  if (thread.process->unit->processes.size() == 1 || std::exchange(thread.reports_exit, true)) return;
  tracer_.report_exit(thread.tid);
}

void Recorder::exits(Thread& thread, TraceeEnd end) {
  note_end_of_process(thread, end);
  resume(thread, Resume::cont);
}

// A thread ends, or has ended: that of a process which is killed is an event, all else is known by its call.
void Recorder::note_end_of_process(const Thread& thread, TraceeEnd end) {
  Process& process = *thread.process;
  Unit& unit = *process.unit;
  if (process.end_logged || !unit.in_interval || thread.left_out) return;
  const bool last = process.threads == 1;
  const auto is_its = [&](const auto& entry) { return entry.second->process == &process; };
  // The threads beside one that executes a program are killed as well.
  const bool executes = std::any_of(unit.threads.begin(), unit.threads.end(), [&](const auto& entry) {
    const SyscallRow* const row = entry.second->row;
    const bool inside = entry.second->run == Thread::Run::syscall || entry.second->run == Thread::Run::blocked;
    return is_its(entry) && inside && row && (row->special == Special::execve || row->special == Special::execveat);
  });
  if (!last && (!end.killed() || executes || thread.exited)) return;
  process.end_logged = true;
  Event event;
  event.kind = EventKind::signal;
  event.thread = thread.serial;
  event.number = end.signal;
  event.args[0] = static_cast<uint64_t>(SignalPoint::anywhere);
  event.fatal = true;
  for (const auto& [serial, other] : unit.threads) {
    if (other->process == &process) note_thread_end(*other, true, event);
  }
  unit.log.add(std::move(event));
  unit.end_state.clear();
}

void Recorder::ended(pid_t tid, TraceeEnd end) {
  early_.erase(tid);
  Thread* found = find(tid);
  if (!found) return;
  Process& process = *found->process;
  Unit& unit = *process.unit;
  if (tid == root_) {
    root_end_ = end;
    root_ended_ = tracer_.now();
    continue_front();
  }
  note_end_of_process(*found, end);
  remove_thread(*found);
  if (process.threads == 0) {
    for (const auto& [serial, thread] : unit.threads) {
      if (thread->tracer == process.pid) let_go(*thread);
    }
    if (process.gate && process.gate->program && !process.borrows_memory) process.gate->program->ended = true;
    unit.clock.remove(process.pid);
    if (process.stays) writer_.add(*process.stays);
    std::erase_if(unit.processes, [&](const auto& p) { return p.get() == &process; });
    if (unit.processes.empty()) {
      unit.log.flush();
      end_interval(unit);
      let_write(unit);
      leave_join(unit);
    }
  }
  schedule(unit);
  if (unit.processes.empty()) ended_units_.push_back(unit.id);
}

// At a stop, when nothing refers to them: a recording holds no memory for what has ended.
void Recorder::forget_ended_units() {
  for (const UnitId id : std::exchange(ended_units_, {})) {
    const auto unit = units_.find(id);
    if (unit == units_.end()) continue;
    end_messages(*unit->second);
    add_calls(*unit->second);
    if (unit->second->has_image) ended_with_image_.push_back(id);
    units_.erase(unit);
    writer_.end_unit(id);
  }
}

// The next stop of a tracee. Nothing if it has ended, which is handled then.
std::optional<Stop> Recorder::wait_stop(pid_t tid) {
  for (;;) {
    const auto stop = tracer_.wait(tid);
    if (!stop) return {};
    if (const auto* gone = std::get_if<Gone>(&*stop)) {
      ended(tid, gone->end);
      return {};
    }
    const auto* exiting = std::get_if<Exiting>(&*stop);
    Thread* const thread = exiting ? find(tid) : nullptr;
    if (!thread) return stop;
    exits(*thread, exiting->end);
  }
}

}  // namespace redrive
