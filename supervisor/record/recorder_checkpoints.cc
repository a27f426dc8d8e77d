// Intervals and their checkpoints (checkpoint/DESIGN.md): the pause is an injected clone; the copy's pages are stored
// off the critical path.
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/procfs.h"
#include "checkpoint/address_space.h"
#include "checkpoint/stub.h"
#include "supervisor/plan/restore_cost.h"
#include "supervisor/record/recorder.h"
#include "supervisor/tier/end_state.h"
#include "supervisor/tier/memory_calls.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kAskedBefore = 8;     // of T
constexpr auto kSkippedInterval = 10ms;  // until it is tried again to take a checkpoint that was skipped
constexpr int kShareOfFailures = 20;     // ... and so much longer than the attempt took, if it failed
constexpr auto kClockInterval = 1ms;     // how often a unit's CPU clock is asked whether a checkpoint is due

constexpr auto kWakeInterval = 100ms;  // how often it is asked whether a unit is to be woken for a checkpoint

// Whether a call that sleeps has done nothing yet: once woken, it can be entered again as if nothing had been.
bool sleeps_whole(int64_t number, std::span<const uint64_t, 6> args) {
  switch (number) {
    case SYS_read:
    case SYS_readv:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_futex:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_accept:
    case SYS_accept4:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
      return true;
    case SYS_recvfrom:
      return !(args[3] & MSG_WAITALL);
    case SYS_recvmsg:
      return !(args[2] & MSG_WAITALL);
    default:
      return false;
  }
}

// Names those mappings a stack that grow downwards: /proc/PID/maps names only the one that holds the program's first
// frame. `asked_for`: the program has mapped memory that grows.
Result<void> note_growing(pid_t pid, bool asked_for, std::vector<Mapping>& mappings) {
  const auto stack = std::find_if(mappings.begin(), mappings.end(), [](const Mapping& m) { return m.is_stack(); });
  const bool split = stack != mappings.begin() && stack != mappings.end() && std::prev(stack)->end == stack->start;
  if (!asked_for && !split) return {};
  ASSIGN_OR_RETURN(const auto growing, growing_mappings(pid));
  for (auto& mapping : mappings) {
    if (growing.contains(mapping.start)) mapping.name = "[stack]";
  }
  return {};
}

}  // namespace

void Recorder::begin_interval(Unit& unit, CheckpointKind kind, Process& process, uint64_t pause_ns) {
  unit.log.flush();  // no series goes on from one interval into the next, and no call ends in the one where it began
  unit.in_interval = true;
  unit.end_state.clear();
  unit.interval = unit.next_interval++;
  unit.clock.begin();
  unit.received = false;
  unit.interval_began = tracer_.now();
  IntervalRecord record;
  record.unit = unit.id;
  record.interval = unit.interval;
  record.kind = kind;
  record.first_event = unit.log.next();
  record.pid = process.pid;
  record.command = process.command;
  record.pause_ns = pause_ns;
  writer_.add(record);
  unit.interval_record = record;
  unit.period_ns = limits_.checkpoint_period_ns;
  messages_.begin_interval(unit.id, unit.ended_ns);
}

// Of an interval that begins with this much memory: restoring it and executing the interval have to fit into the bound.
// Where they cannot, nor could with less than a quarter of T, closer checkpoints would only cost.
uint64_t Recorder::period_ns(uint64_t memory_bytes) const {
  const uint64_t whole = limits_.checkpoint_period_ns;
  const double left_s = limits_.restore_budget_s - restore_s(memory_bytes);
  if (left_s <= 0) return whole;
  return std::max(whole / 4, static_cast<uint64_t>(static_cast<double>(whole) * left_s / limits_.restore_budget_s));
}

void Recorder::end_interval(Unit& unit) {
  if (!unit.in_interval) return;
  unit.in_interval = false;
  unit.ended_ns = unit.clock.interval_ns();
  writer_.add(IntervalEnd{unit.id, unit.interval, unit.ended_ns, unit.log.next(), std::exchange(unit.end_state, {})});
}

// The thread is about to end its unit's interval together with its program, if the kernel lets it. What others'
// calls may still write is left out: it could be there already.
void Recorder::note_end_state(const Thread& thread, const user_regs_struct& regs) const {
  const Process& process = *thread.process;
  Unit& unit = *process.unit;
  if (unit.processes.size() > 1 || !unit.in_interval) return;
  std::vector<AddressRange> except{process.vdso};
  for (const auto& [serial, other] : unit.threads) {
    if (other == &thread || !other->row) continue;
    for (const Span& span : possible_outputs(other->output_args, other->sizes)) {
      except.push_back({span.address, span.address + span.length});
    }
    if (const auto& own = other->timeout.own()) except.push_back({own->at, own->at + sizeof own->timeout});
  }
  std::vector<Address> pages = sample_pages(process.pid, regs.rsp, except);
  if (const Gate* gate = process.tier()) {
    std::erase_if(pages, [&](Address page) { return gate->touches(page, page + kPageSize); });
  }
  const auto state = read_end_state(regs, tracer_.get_xstate(thread.tid), process.memory, std::move(pages));
  if (state) unit.end_state = encode(*state);
}

// When the unit is asked for one: so much before T that it comes to a call, or is stopped where it is, within T.
uint64_t Recorder::checkpoint_at_ns(const Unit& unit) const {
  return std::min(unit.period_ns - unit.period_ns / kAskedBefore, messages_.checkpoint_by_ns(unit.id));
}

void Recorder::ask_at_each_event() {
  if (!messages_.looks_for_place()) return;
  for (auto& [id, unit] : units_) {
    if (unit->baton.is_held() && unit->in_interval) ask_to_stop(*unit->baton.holder());
  }
}

// A checkpoint can be taken when what was born is seen.
bool Recorder::births_unseen(const Unit& unit) {
  return std::any_of(unit.threads.begin(), unit.threads.end(),
                     [](const auto& t) { return t.second->run == Thread::Run::starting; });
}

// While a vfork child runs, all of its memory would have to be read at once. It has its program soon.
bool Recorder::births_pending(const Unit& unit) {
  return births_unseen(unit) ||
         std::any_of(unit.processes.begin(), unit.processes.end(), [](const auto& p) { return p->borrows_memory; });
}

bool Recorder::checkpoint_due(Unit& unit) {
  if (limits_.checkpoint_period_ns == 0) return false;
  const auto now = tracer_.now();
  const bool at_each_event = unit.checkpoint_wanted || messages_.looks_for_place();
  if (now < unit.last_clock_check || (!at_each_event && now - unit.last_clock_check < kClockInterval)) return false;
  unit.last_clock_check = now;
  const uint64_t at_ns = unit.clock.interval_ns();
  const bool due = unit.checkpoint_wanted || at_ns >= checkpoint_at_ns(unit);
  if (!due && !messages_.wants_checkpoint(unit.id, at_ns)) return false;
  if (births_pending(unit)) return false;
  if (images_.copies_alive() >= limits_.copies) {
    // Nor together with others: while one is wanted, no call is served.
    unit.checkpoint_wanted = false;
    ++skipped_checkpoints_;
    unit.last_clock_check = now + kSkippedInterval;
    return false;
  }
  return true;
}

// Messages that cross from an interval that is old into one that is new are what the policy has to keep. So units whose
// checkpoint is half due take it when another one does: from then on they take theirs together, for as long as they run
// at the same pace. A unit that waits for others most of the time grows old by their messages, not by its own CPU time.
void Recorder::align_checkpoints(const Unit& with) {
  const auto now = tracer_.now();
  for (auto& [id, unit] : units_) {
    if (unit.get() == &with || !unit->in_interval || unit->processes.empty()) continue;
    const std::chrono::nanoseconds half(unit->period_ns / 2);
    const bool old_by_messages = unit->received && now - unit->interval_began >= half;
    const uint64_t at_ns = unit->clock.interval_ns();
    if (old_by_messages || std::chrono::nanoseconds(at_ns) >= half || messages_.wants_checkpoint(id, at_ns)) {
      unit->checkpoint_wanted = true;
    }
    if (unit->checkpoint_wanted && unit->baton.is_held()) ask_to_stop(*unit->baton.holder());
  }
}

// What the policy waits for until all units have taken their checkpoints must not wait for one that sleeps: it is
// woken, takes its checkpoint and enters its call again. Not calls that would return with a part of their work done.
void Recorder::wake_for_checkpoint(Unit& unit) {
  const auto now = tracer_.now();
  if (now - unit.last_woken < kWakeInterval || !unit.in_interval || images_.copies_alive() >= limits_.copies) return;
  unit.last_woken = now;
  if (limits_.checkpoint_period_ns == 0 || !messages_.wants_checkpoint(unit.id, unit.clock.interval_ns())) return;
  const auto asleep = [&](const auto& entry) {
    const Thread& thread = *entry.second;
    if (thread.run == Thread::Run::user) {
      const gate::Slot* slot = thread.process->gate ? slot_of(thread) : nullptr;
      if (!slot || slot->phase != gate::Phase::kernel) return false;
      return sleeps_whole(static_cast<int64_t>(slot->regs.rax), std::span<const uint64_t, 6>(&slot->regs.rdi, 6));
    }
    if (thread.run != Thread::Run::syscall && thread.run != Thread::Run::blocked) return false;
    return sleeps_whole(static_cast<int64_t>(thread.entry.orig_rax), thread.args);
  };
  const auto sleeper = std::find_if(unit.threads.begin(), unit.threads.end(), asleep);
  if (sleeper == unit.threads.end() || (unit.baton.is_held() && unit.baton.holder() != sleeper->second)) {
    return;
  }
  unit.checkpoint_wanted = true;
  Thread& thread = *sleeper->second;
  thread.woken = thread.run != Thread::Run::user;
  ask_to_stop(thread);
  tracer_.interrupt(thread.tid);
}

Result<uint64_t> Recorder::inject(Thread& thread, const user_regs_struct& at_entry, long number,
                                  std::initializer_list<uint64_t> args, pid_t* born) {
  user_regs_struct regs = at_entry;
  regs.orig_rax = static_cast<uint64_t>(number);
  int index = 0;
  for (const uint64_t arg : args) syscall_arg(regs, index++) = arg;
  set_regs(thread, regs);
  for (;;) {
    resume(thread, Resume::to_syscall_exit);
    const auto stop = wait_stop(thread.tid);
    if (!stop) return Error{"the program was killed"};
    if (const auto* birth = std::get_if<Birth>(&*stop); birth && born) *born = birth->child;
    if (is<SyscallExit>(*stop)) break;
  }
  if (!get_regs(thread, regs)) return Error{"the program was killed"};
  return static_cast<uint64_t>(regs.rax);
}

void Recorder::reap_copies(Thread& thread) {
  const user_regs_struct entry = thread.entry;
  const pid_t copy = thread.process->copies_to_reap.back();
  thread.process->copies_to_reap.pop_back();
  if (inject(thread, entry, SYS_wait4, {static_cast<uint64_t>(pid_in_own_namespace(copy)), 0, __WALL | WNOHANG, 0}))
    rewind(thread, entry);
}

// Whether an unknown tracee is a copy whose original was killed before its birth was reported.
bool Recorder::is_lost_copy(pid_t tid) {
  user_regs_struct regs;
  return tracer_.get_regs(tid, regs) && regs.orig_rax == SYS_clone && regs.rdi == CLONE_FILES && regs.r9 == kCopyMark;
}

void Recorder::checkpoint(Thread& trigger) {
  const auto stopped_at = tracer_.now();
  Process& process = *trigger.process;
  Unit& unit = *process.unit;
  const user_regs_struct entry = trigger.entry;
  // Only a process that shares its memory with nobody can be copied by a clone; a joined unit is read while it is
  // stopped. So is one whose copy would begin a PID namespace, and end it.
  const bool copied = unit.processes.size() == 1 && !forks_into_namespace(process.pid);
  auto captured = capture(unit, trigger, true, copied);
  if (!captured) {
    ++skipped_checkpoints_;
    unit.checkpoint_wanted = false;
    const auto now = tracer_.now();
    unit.last_clock_check = now + std::max<Clock::duration>(kSkippedInterval, kShareOfFailures * (now - stopped_at));
    if (!unit.in_interval && trigger.left_out) {
      unit.checkpoint_first = true;  // at another thread
    } else if (!unit.in_interval) {
      begin_interval(unit, CheckpointKind::image, process, 0);
      add_unsure(unit, "a checkpoint that it needs could not be stored: " + captured.error().message);
    }
    rewind(trigger, entry);
    return;
  }
  ImageJob& job = *captured;
  if (copied) {
    pid_t copy = -1;
    // CLONE_FILES: the copy adds no references to the program's open files. Exit signal 0: the program is not told of
    // its end.
    const auto made = inject(trigger, entry, SYS_clone, {CLONE_FILES, 0, 0, 0, 0, kCopyMark}, &copy);
    if (!made) {
      // The program was killed meanwhile. The copy would keep its descriptors open.
      if (copy >= 0) end_copy(copy);
      return;
    }
    if (!take_copy(job, copy, trigger)) {
      rewind(trigger, entry);
      return;
    }
  }
  end_interval(unit);
  begin_interval(unit, CheckpointKind::image, process, static_cast<uint64_t>((tracer_.now() - stopped_at).count()));
  job.interval = unit.interval;
  rewind(trigger, entry);
  add_image(unit, std::move(job), copied);
}

// Of a copy that was born; -1: it was not. False: the checkpoint is skipped.
bool Recorder::take_copy(ImageJob& job, pid_t copy, const Thread& original) {
  if (copy < 0 || !wait_stop(copy)) {
    ++skipped_checkpoints_;
    return false;
  }
  job.copy = copy;
  job.original = original.tid;
  if (auto memory = Memory::open(copy)) job.memory = std::move(*memory);
  return true;
}

void Recorder::hand_over(Unit& unit, ImageJob job) {
  unit.has_image = true;
  job.ended_units = std::exchange(ended_with_image_, {});
  images_.add(std::move(job));
}

// Of the interval that has just begun. `copied`: the pages of its process are in a copy.
void Recorder::add_image(Unit& unit, ImageJob job, bool copied) {
  unit.period_ns = period_ns(job.bytes() + (copied ? private_bytes(unit.processes.front()->pid) : 0));
  if (!unit.checkpoint_wanted.exchange(false)) align_checkpoints(unit);
  hand_over(unit, std::move(job));
}

// A virtual checkpoint, at a syscall's entry.
void Recorder::note_checkpoint(Process& process) {
  Unit& unit = *process.unit;
  end_interval(unit);
  begin_interval(unit, CheckpointKind::image, process, 0);
  if (!unit.checkpoint_wanted.exchange(false)) align_checkpoints(unit);
}

// The image of a unit whose next event is not a syscall's entry: all of it is read while it is stopped, and its
// interval has begun. `regs` are the trigger's if it has not run yet, `known` as in capture().
void Recorder::store_now(Unit& unit, Thread& trigger, const user_regs_struct* regs, const KnownMappings* known) {
  const auto stopped_at = tracer_.now();
  auto job = capture(unit, trigger, false, false, known);
  if (!job) {
    ++skipped_checkpoints_;
    if (trigger.left_out) return;
    add_unsure(unit, "a checkpoint that it needs could not be stored: " + job.error().message);
    return;
  }
  if (regs) job->state.threads.front().regs = *regs;
  job->interval = unit.interval;
  unit.period_ns = period_ns(job->bytes());
  hand_over(unit, std::move(*job));
  unit.interval_record.pause_ns = static_cast<uint64_t>((tracer_.now() - stopped_at).count());
  writer_.add(unit.interval_record);
}

// What is read of a unit while it is stopped: its state, and all of its pages or the shared ones. `known`: if that is.
// Processes that are killed meanwhile are left out.
Result<ImageJob> Recorder::capture(Unit& unit, Thread& trigger, bool at_entry, bool shared_only,
                                   const KnownMappings* known) {
  for (;;) {
    ImageJob job;
    const auto captured = capture_into(job, unit, trigger, at_entry, shared_only, known);
    const bool again = leave_out_killed(unit);
    if (trigger.left_out) return Error{"the program was killed"};
    if (again) continue;
    if (!captured) return captured.error();
    unit.first_joined_thread = unit.first_joined_process = ~0u;
    return job;
  }
}

Result<void> Recorder::capture_into(ImageJob& job, Unit& unit, Thread& trigger, bool at_entry, bool shared_only,
                                    const KnownMappings* known) {
  job.unit = unit.id;
  ASSIGN_OR_RETURN(job.state, capture_state(unit, trigger, at_entry, known));
  for (const auto& process : unit.processes) {
    if (!process->tier()) continue;
    for (const auto& site : process->tier()->sites) job.patches.push_back({process->serial, site.start, site.original});
  }
  return capture_pages(unit, shared_only, job);
}

// Whether processes were killed, and have no memory any more, of which that was not known.
bool Recorder::leave_out_killed(Unit& unit) {
  bool any = false;
  const Process* seen = nullptr;
  for (const auto& [serial, thread] : unit.threads) {
    if (thread->exited || thread->left_out || seen == thread->process) continue;
    char path[1];
    const std::string exe = proc_path(thread->tid, "exe");
    if (readlink(exe.c_str(), path, sizeof path) < 0 && (errno == ENOENT || errno == ESRCH)) {
      any = thread->left_out = true;
    } else {
      seen = thread->process;
    }
  }
  return any;
}

// Waits until a thread stands still whose registers are to be read: one that was born, or that slept in a served call
// (its extended registers were not read when it fell asleep), which is stopped. The stop is handled in its turn.
void Recorder::await_stop(const Thread& thread) {
  if (stops_.holds(thread.tid)) return;
  if (thread.asleep && !tracer_.interrupt(thread.tid)) return;
  stops_.await(thread.tid);
}

// Beside its threads, of which there are some. `owner`: whose memory it runs on; null if its own.
Result<ProcessState> Recorder::capture_process(Process& process, const ProcessSerial* owner,
                                               const KnownMappings* known) {
  ProcessState saved;
  saved.process = process.serial;
  saved.pid = process.pid;
  saved.brk = process.brk;
  saved.stack_limit = stack_limit(process.pid);
  if (process.leader_exited) {
    // /proc shows the memory of an exited leader no more, but that of any other thread.
    const auto& threads = process.unit->threads;
    const auto alive = std::find_if(threads.begin(), threads.end(), [&](const auto& entry) {
      return entry.second->process == &process && !entry.second->exited;
    });
    ASSIGN_OR_RETURN(process.memory, Memory::open(alive->second->tid));
  }
  if (owner) {
    saved.memory_of = *owner;
    return saved;
  }
  saved.descriptors = *process.descriptors;
  if (known) {
    saved.mappings = known->mappings;
  } else {
    ASSIGN_OR_RETURN(saved.mappings, read_mappings(process.memory.pid()));
  }
  if (const Gate* gate = process.tier()) {
    std::erase_if(saved.mappings, [&](const Mapping& m) { return gate->owns(m.start, m.end); });
  }
  TRY(note_growing(process.pid, process.maps_growing, saved.mappings));
  MappedFiles asked(process.memory.pid());
  MappedFiles& files = known ? known->files : asked;
  for (auto& mapping : saved.mappings) {
    const MappedObject* const object = mapping.shared ? objects_.find(mapping.device, mapping.inode) : nullptr;
    if (object) mapping.shared_object = object->id;
    if (object && object->writable) {
      if (object->has_file) mapping.object_size = object_size(process.memory.pid(), mapping);
    } else if (object && object->copy) {
      mapping.file = object->copy;
    } else if (mapping.inode != 0) {
      ASSIGN_OR_RETURN(mapping.file, file_of(files, mapping));
      if (!mapping.shared) check_view(process, files.of(mapping)->version);
    }
  }
  return saved;
}

// False: it was killed.
bool Recorder::capture_thread(Thread& thread, bool entering, ThreadState& saved) {
  saved.thread = thread.serial;
  saved.process = thread.process->serial;
  saved.in_syscall = !entering && (thread.stop == Thread::Stop::exit || thread.run == Thread::Run::blocked);
  if (entering) {
    saved.regs = before_syscall(thread.entry);
    saved.xstate = tracer_.get_xstate(thread.tid);
    return !saved.xstate.empty();
  }
  if (saved.in_syscall) {
    if (thread.asleep) await_stop(thread);
    saved.regs = thread.entry;
    // One that has come out of the kernel is stopped: syscalls leave the extended state alone.
    const bool stopped = thread.stop == Thread::Stop::exit || thread.asleep;
    saved.xstate = stopped ? tracer_.get_xstate(thread.tid) : thread.xstate;
    return !stopped || !saved.xstate.empty();
  }
  if (thread.run == Thread::Run::stopped || thread.stop == Thread::Stop::continued) {
    saved.regs = thread.entry;
    saved.xstate = thread.xstate;
    return true;
  }
  bool alive = get_regs(thread, saved.regs);
  if (!alive && thread.run == Thread::Run::starting) {
    await_stop(thread);
    alive = get_regs(thread, saved.regs);
  }
  if (alive) saved.xstate = tracer_.get_xstate(thread.tid);
  if (thread.hides_untraced) saved.regs.rdi |= CLONE_UNTRACED;  // as start() will
  return alive;
}

Result<UnitState> Recorder::capture_state(Unit& unit, Thread& trigger, bool at_entry, const KnownMappings* known) {
  UnitState state;
  state.trigger = trigger.serial;
  state.next_thread = unit.next_thread;
  state.next_process = unit.next_process;
  state.first_joined_thread = unit.first_joined_thread;
  state.first_joined_process = unit.first_joined_process;
  for (const auto& [serial, thread] : unit.threads) {
    if (thread->exited || thread->left_out) continue;
    ThreadState saved;
    const bool entering = thread == &trigger && at_entry;
    if ((thread->left_out = !capture_thread(*thread, entering, saved))) continue;
    state.threads.push_back(std::move(saved));
  }
  std::map<uint64_t, ProcessSerial> owners;  // of memory, by memory_id
  for (const auto& process : unit.processes) {
    if (std::none_of(state.threads.begin(), state.threads.end(),
                     [&](const ThreadState& saved) { return saved.process == process->serial; })) {
      continue;
    }
    const auto [owner, first] = owners.try_emplace(process->memory_id, process->serial);
    ASSIGN_OR_RETURN(auto saved, capture_process(*process, first ? nullptr : &owner->second, known));
    state.processes.push_back(std::move(saved));
  }
  return state;
}

Result<void> Recorder::capture_pages(Unit& unit, bool shared_only, ImageJob& job) {
  for (const ProcessState& saved : job.state.processes) {
    const auto process = std::find_if(unit.processes.begin(), unit.processes.end(),
                                      [&](const auto& other) { return other->serial == saved.process; });
    const auto wanted = [&](const Mapping& m) { return m.shows_object() || (!shared_only && !m.shared_object); };
    const auto take = [&](const Mapping& mapping, Address address, std::span<const uint8_t> pages) -> Result<void> {
      job.add(saved.process, mapping, address, pages);
      return {};
    };
    TRY(visit_pages((*process)->memory, saved.mappings, wanted, take));
  }
  return {};
}

Result<uint64_t> Recorder::file_of(MappedFiles& files, const Mapping& mapping) {
  const MappedFile* file = files.of(mapping);
  if (!file) return Error{"cannot open the mapped file " + mapping.name};
  if (const auto known = file_ids_.find(file->version); known != file_ids_.end()) return known->second;
  auto id = writer_.add_file(file->path, mapping.name);
  if (id) file_ids_[file->version] = *id;
  return id;
}

}  // namespace redrive
