#include "supervisor/replay/replayer.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "checkpoint/address_space.h"
#include "interceptors/payload.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/replay/divergence.h"
#include "supervisor/replay/probe.h"
#include "supervisor/replay/verify.h"
#include "supervisor/tier/births.h"
#include "supervisor/tier/end_state.h"
#include "supervisor/tier/memory_calls.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr double kMostRecordedNs = 1e15;  // twelve days: a trace can say anything
constexpr int kSyscallStop = SIGTRAP | 0x80;

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%#lx", value);
  return text;
}

void stay_on(pid_t tid, int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(tid, sizeof set, &set);
}

// What was recorded of all that is executed. Where the recorder was killed before it noted that: as long as an interval
// is to be.
uint64_t recorded_ns(const Trace& trace, const PlannedInterval& what) {
  double ns = 0;
  for (IntervalIndex i = what.start; i <= what.interval; ++i) {
    const IntervalEnd* const end = trace.interval_end(what.unit, i);
    ns += end ? static_cast<double>(end->cpu_ns) : trace.settings().checkpoint_period_s * 1e9;
  }
  return ns > 0 ? static_cast<uint64_t>(std::min(ns, kMostRecordedNs)) : 0;
}

}  // namespace

Replayer::Replayer(const Trace& trace, const PlannedInterval& what, std::optional<EventRef> birth, MessageStore& store,
                   int processor, ReplayTier* tier, ReplayerOptions options)
    : trace_(trace),
      what_(what),
      birth_(birth),
      store_(store),
      messages_(what.unit, store),
      processor_(processor),
      options_(options),
      tier_(tier),
      patience_(recorded_ns(trace, what)) {
  file_path_ = [this](uint64_t file) { return trace_.file_path(file); };
  if (!options_.preparation) return;
  due_.emplace(trace_.intervals(what_.unit), what_.start,
               [this](IntervalIndex interval) { return options_.preparation->wants_image(what_.unit, interval); });
}

Result<Replayer::Outcome> Replayer::run() {
  try {
    Result<Outcome> outcome = run_to_end();
    if ((!outcome || outcome->divergence) && was_killed()) {
      return Error{
          fmt::format("interval {} of unit {} was not re-driven: its process was killed, as by the kernel if memory is "
                      "short or the "
                      "limit of CPU time is reached (see dmesg(1), ulimit -t)",
                      what_.interval, what_.unit)};
    }
    return outcome;
  } catch (const std::exception& failure) {  // no memory: the threads of other intervals go on
    return Error{
        fmt::format("interval {} of unit {} cannot be re-driven: {}", what_.interval, what_.unit, failure.what())};
  }
}

// What is re-driven cannot end itself by SIGKILL.
bool Replayer::was_killed() const {
  return killed_ || std::any_of(unit_.processes.begin(), unit_.processes.end(),
                                [](const auto& process) { return process.second.stub.was_killed(); });
}

Result<Replayer::Outcome> Replayer::run_to_end() {
  stay_on(0, processor_);
  TRY(restore_start());
  const EventIndex first = trace_.intervals(what_.unit).at(what_.start).first_event;
  end_ = what_.requisite_event;
  Outcome outcome;
  for (EventIndex at = first;;) {
    const auto halt = options_.halt ? options_.halt->next() : std::nullopt;
    const EventIndex next = halt.value_or(end_);
    ASSIGN_OR_RETURN(const Step step, execute(std::exchange(at, next), next));
    if (step.has_diverged()) {
      outcome.divergence = report(step.difference());
      break;
    }
    if (!halt) break;
    ASSIGN_OR_RETURN(const Stood stood, stand(at));
    if (const auto* difference = std::get_if<Difference>(&stood)) outcome.divergence = report(*difference);
    if (outcome.divergence || std::get<Halt::Then>(stood) == Halt::Then::end) return outcome;
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - options_.started).count();
  if (outcome.divergence || !options_.verify) return outcome;
  ASSIGN_OR_RETURN(const Verification verification, verify_end());
  if (const auto* difference = std::get_if<Difference>(&verification)) outcome.divergence = report(*difference);
  if (const auto* unverified = std::get_if<Unverified>(&verification)) outcome.unverified = unverified->why;
  outcome.verified = std::holds_alternative<Verified>(verification);
  return outcome;
}

// Events [first, last), of which `first` is the next.
Result<Step> Replayer::execute(EventIndex first, EventIndex last) {
  const uint64_t before = executed_;
  Result<Step> step = Step::as_recorded();
  TRY(trace_.for_each_event(what_.unit, first, last, [&](EventIndex index, const Event& event) {
    const auto goes_on = [&] { return step && !step->has_diverged(); };
    if (options_.preparation) step = prepare_before(index, event);
    if (goes_on()) step = visit(index, event);
    previous_ = &event;
    return goes_on();
  }));
  previous_ = nullptr;
  TRY_STEP(std::move(step));
  TRY_STEP(run_batch(false));
  TRY(take_payloads());
  const EventIndex next = first + (executed_ - before);
  if (next == last) return Step::as_recorded();
  return Error{"unit " + std::to_string(what_.unit) + " has no event " + std::to_string(next) + " in this trace",
               Status::damaged};
}

Result<void> Replayer::restore_start() {
  const IntervalRecord& interval = trace_.intervals(what_.unit).at(what_.start);
  if (!interval.has_image) return adopt_birth(interval);
  ASSIGN_OR_RETURN(const Image image, trace_.image(what_.unit, what_.start));
  UnitState state;
  Decoder header(image.header);
  if (!decode(header, state)) {
    return Error{"the image of interval " + std::to_string(what_.start) + " of unit " + std::to_string(what_.unit) +
                     " cannot be understood",
                 Status::damaged};
  }
  const auto read_pages = [&](const FillPages& fill) { return trace_.read_pages(image.pages, fill); };
  ASSIGN_OR_RETURN(unit_, restore(state, read_pages, file_path_, tier_ ? tier_->arena->stub_tier() : StubTier{}));
  next_process_ = state.next_process;
  next_thread_ = state.next_thread;
  for (const auto& saved : state.threads) {
    Thread& thread = threads_[saved.thread];
    thread.serial = saved.thread;
    thread.tid = unit_.threads.at(saved.thread);
    thread.process = saved.process;
    thread.stopped_at_syscall = saved.in_syscall;
    thread.regs = saved.regs;
  }
  return map_gates();
}

Result<void> Replayer::adopt_birth(const IntervalRecord& interval) {
  if (!birth_) {
    return Error{"the checkpoint of interval " + std::to_string(what_.start) + " of unit " +
                 std::to_string(what_.unit) + " was not stored"};
  }
  auto birth = store_.birth(*birth_);
  if (!birth) return birth.error();
  const pid_t pid = birth->stub.pid;
  stay_on(pid, processor_);
  ASSIGN_OR_RETURN(Stub stub, Stub::take_over(std::move(birth->stub)));
  unit_.processes.emplace(0, RestoredProcess{std::move(stub), birth->brk, interval.pid, {}, birth->descriptors});
  if (birth->gate) {
    birth->gate->slot()->processor = static_cast<uint32_t>(processor_);
    gates_[0] = std::move(birth->gate);
  }
  Thread& thread = threads_[0];
  thread.tid = pid;
  thread.regs = birth->regs;
  if (!set_regs(thread, thread.regs)) return errno_error("cannot set registers");
  next_process_ = next_thread_ = 1;
  return gates_.empty() ? map_gate({0}, pid) : Result<void>();
}

Divergence Replayer::report(const Difference& difference) {
  Divergence d{what_.unit, what_.interval, difference.event, difference.expected, difference.found, {}, {}};
  const auto found = difference.thread ? threads_.find(*difference.thread) : threads_.end();
  if (found == threads_.end() || !unit_.processes.contains(found->second.process)) return d;
  const Thread& thread = found->second;
  remove_gate(thread.process);  // the code is to be shown as it is in the program
  d.stack = stack_of(thread.tid, trace_.files());
  d.disassembly = disassembly_at(memory(thread), thread.regs.rip);
  return d;
}

Difference Replayer::difference(const Thread& thread, EventIndex index, std::string expected, std::string found) {
  return {index, thread.serial, std::move(expected), std::move(found)};
}

Step Replayer::diverged(const Thread& thread, EventIndex index, std::string expected, std::string found) {
  return Step::diverged(difference(thread, index, std::move(expected), std::move(found)));
}

bool Replayer::set_regs(const Thread& thread, const user_regs_struct& regs) const {
  user_regs_struct physical = regs;
  physical.orig_rax = ~0ull;  // no call goes on
  if (const Gate* gate = gate_of(thread)) physical.rip = gate->physical(regs.rip);
  return redrive::set_regs(thread.tid, physical);
}

// At a tick of the thread's stub: whether it goes on for too long without coming to what is awaited.
bool Replayer::is_overdue(const Thread& thread) {
  const uint64_t now_ns = unit_.processes.at(thread.process).stub.cpu_time_ns();
  if (awaited_ && !awaited_->intact()) return true;
  return patience_.is_over(thread.process, stops_, now_ns);
}

std::string Replayer::came_to(const Thread& thread, StopKind stop) const {
  switch (stop) {
    case StopKind::syscall:
      return "a system call at " + hex(thread.regs.rip);
    case StopKind::fault:
      return "a fault at " + hex(thread.regs.rip);
    case StopKind::gone:
      return "the process ended";
    case StopKind::overdue:
      break;
  }
  return "neither a system call nor a fault within " + patience_.text();
}

Result<Replayer::StopKind> Replayer::run_to_stop(Thread& thread) {
  if (thread.ahead) return *std::exchange(thread.ahead, std::nullopt);
  ++stops_;
  const Gate* const gate = gate_of(thread);
  for (;;) {
    // With the tier a seccomp filter stops the program's calls, but not those of the code inside it.
    const auto how = static_cast<__ptrace_request>(gate ? PTRACE_CONT : PTRACE_SYSEMU);
    if (ptrace(how, thread.tid, nullptr, nullptr) != 0) return StopKind::gone;
    int status = 0;
    if (!wait_for(thread.tid, status) || !WIFSTOPPED(status)) {
      killed_ |= WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      return StopKind::gone;
    }
    const bool filtered = status >> 16 == PTRACE_EVENT_SECCOMP;
    if (status >> 16 && !filtered) continue;
    const int signal = WSTOPSIG(status);
    if (filtered || signal == kSyscallStop) {
      if (!get_regs(thread.tid, thread.regs)) return StopKind::gone;
      // However the thread goes on, the kernel makes no call.
      if (filtered && ptrace(PTRACE_POKEUSER, thread.tid, offsetof(user, regs.orig_rax), ~0ull) != 0)
        return StopKind::gone;
      if (gate) gate->make_canonical(thread.regs);
      thread.stopped_at_syscall = true;
      return StopKind::syscall;
    }
    siginfo_t info{};
    ptrace(PTRACE_GETSIGINFO, thread.tid, nullptr, &info);
    // Anything that no instruction caused comes from outside (a terminal's Ctrl-C) and is none of the program's.
    const bool own = caused_by_instruction(info);
    if (!own && (signal != SIGXCPU || !is_overdue(thread))) continue;
    if (!get_regs(thread.tid, thread.regs)) return StopKind::gone;
    if (!own) {
      if (gate) gate->make_canonical(thread.regs);
      return StopKind::overdue;
    }
    if (gate && gate->executes_at(thread.regs.rip)) {
      // An argument of a call that would have been answered: the call is left to a stop.
      thread.regs.rip = tier_->arena->header().leave;
      thread.regs.orig_rax = ~0ull;
      if (!redrive::set_regs(thread.tid, thread.regs)) return StopKind::gone;
      continue;
    }
    if (gate) gate->make_canonical(thread.regs);
    return StopKind::fault;
  }
}

Replayer::Thread* Replayer::thread_of(const Event& event) {
  const auto found = threads_.find(event.thread);
  return found == threads_.end() ? nullptr : &found->second;
}

Step Replayer::no_thread(EventIndex index, const Event& event) {
  return Step::diverged({index, std::nullopt, "an event of thread " + std::to_string(event.thread), "no such thread"});
}

// `made`: how many of the calls that the event stands for were made already.
Result<Step> Replayer::step(EventIndex index, const Event& event, uint64_t made) {
  Thread* const found = thread_of(event);
  if (!found) return no_thread(index, event);
  Thread& thread = *found;
  ++executed_;
  store_.got_on();
  switch (event.kind) {
    case EventKind::syscall:
      return make_calls(thread, index, event, made);
    case EventKind::entry:
      return replay_entry(thread, index, event);
    case EventKind::exit:
      if (!thread.stopped_at_syscall) {
        return diverged(thread, index, "the exit of " + std::string(syscall_name(event.number)),
                        "the thread is in no system call");
      }
      return replay_effects(thread, index, event);
    case EventKind::signal:
      return replay_signal(thread, index, event);
    case EventKind::trap:
      return replay_trap(thread, index, event);
    case EventKind::preemption:
      return replay_preemption(thread, index, event);
  }
  return Error{"an event of unknown kind", Status::damaged};
}

Result<Step> Replayer::make_calls(Thread& thread, EventIndex index, const Event& event, uint64_t made) {
  std::vector<Event> cycle;
  if (event.repeat > 1 && event.cycle > 1) {
    ASSIGN_OR_RETURN(cycle, read_cycle(index, event));
  }
  for (; made < event.repeat; ++made) {
    const size_t turn = made == 0 || cycle.empty() ? event.cycle - 1 : (made - 1) % event.cycle;
    const Event& call = cycle.empty() ? event : cycle[turn];
    const EventIndex place = index - (event.cycle - 1 - turn);
    TRY_STEP(replay_entry(thread, place, call));
    if (call.fatal) return Step::as_recorded();
    TRY_STEP(replay_effects(thread, place, call));
  }
  return Step::as_recorded();
}

// The events whose calls the event's series consists of; the last is the event itself.
Result<std::vector<Event>> Replayer::read_cycle(EventIndex index, const Event& event) const {
  std::vector<Event> cycle;
  const EventIndex end = index + 1;
  if (event.cycle <= end) {
    TRY(trace_.for_each_event(what_.unit, end - event.cycle, end, [&](EventIndex, const Event& found) {
      cycle.push_back(found);
      return true;
    }));
  }
  const bool usable = cycle.size() == event.cycle && std::all_of(cycle.begin(), cycle.end(), [&](const Event& found) {
                        return found.kind == EventKind::syscall && found.thread == event.thread && !found.fatal &&
                               !found.receive && !found.send && !found.map && !found.registers &&
                               (found.repeat == 1 || &found == &cycle.back());
                      });
  if (usable) return cycle;
  return Error{"event " + std::to_string(index) + " of unit " + std::to_string(what_.unit) +
                   " goes on with a cycle of calls that are not there",
               Status::damaged};
}

Result<Step> Replayer::replay_entry(Thread& thread, EventIndex index, const Event& event) {
  const auto expected = [&] { return format_call(event.number, event.args) + " at " + hex(event.ip); };
  ASSIGN_OR_RETURN(const StopKind stop, run_to_stop(thread));
  if (stop != StopKind::syscall) {
    return diverged(thread, index, expected(), came_to(thread, stop));
  }
  const std::array<uint64_t, 6> args = syscall_args(thread.regs);
  const auto number = static_cast<int64_t>(thread.regs.orig_rax);
  const SyscallRow* row = find_row(number, args);
  const auto differs = [&](const std::string& how) {
    return diverged(thread, index, expected(),
                    format_call(number, args, &memory(thread)) + " at " + hex(thread.regs.rip) + how);
  };
  if (number != event.number || thread.regs.rip != event.ip) return differs("");
  const size_t count = row ? row->argument_count() : 0;
  if (!std::equal(args.begin(), args.begin() + static_cast<ptrdiff_t>(count), event.args.begin())) return differs("");
  if (preserved_registers_hash(thread.regs) != event.regs_hash) return differs(", with other registers");
  if (row && row->treat != Treat::refuse) {
    const auto read = equal_inputs(thread, event, *row);
    if (!read) return differs(", with other contents of the memory that it reads");
    hand_over(thread, index, event, *row, *read);
    if (is_birth(*row) && (event.child_unit || event.child_thread)) TRY(replay_birth(thread, index, event, *row));
  }
  const bool executes = row && (row->special == Special::execve || row->special == Special::execveat);
  if (event.fatal || (executes && event.kind == EventKind::syscall && event.result == 0)) {
    TRY_STEP(verify_last(thread, index, before_syscall(thread.regs)));
  }
  return event.fatal ? replay_end(thread, index, event, row) : Step::as_recorded();
}

// The memory that a call reads; none if it does not hold what was recorded.
std::optional<std::vector<Span>> Replayer::equal_inputs(Thread& thread, const Event& event, const SyscallRow& row) {
  // A new program's strings lie close together.
  const bool executes = row.special == Special::execve || row.special == Special::execveat;
  const Memory strings = executes ? Memory::snapshot(memory(thread)) : Memory();
  const Memory& found = executes ? strings : memory(thread);
  auto read = inputs(row, syscall_args(thread.regs), found);
  if (event.in_hash != 0 && hash_spans(read, found, scratch_) != event.in_hash) return std::nullopt;
  return read;
}

// What a call sends goes to whoever receives it, and whoever is to see it.
void Replayer::hand_over(Thread& thread, EventIndex index, const Event& event, const SyscallRow& row,
                         const std::vector<Span>& read) {
  if (messages_.sent_by(index)) messages_.publish(index, read_payload(read, memory(thread)));
  if (options_.output) output_.call_begins(event, row, read, memory(thread));
}

// The call ended its thread or process, or was one that this is forbidden: then its result says so.
Result<Step> Replayer::replay_end(Thread& thread, EventIndex index, const Event& event, const SyscallRow* row) {
  TRY_STEP(write_memory(thread, index, event));
  if (row && row->special == Special::exit_group && event.result == 0) {
    forget_process(thread.process);
    return Step::as_recorded();
  }
  // A leader stays as a stopped thread; the others go for good.
  const Stub& stub = unit_.processes.at(thread.process).stub;
  if (thread.tid != stub.pid()) stub.end_thread(thread.tid);
  threads_.erase(event.thread);
  return Step::as_recorded();
}

void Replayer::forget_process(ProcessSerial process) {
  std::erase_if(threads_, [&](const auto& entry) { return entry.second.process == process; });
  unit_.processes.erase(process);
  gates_.erase(process);
  code_.erase(process);
}

Result<void> Replayer::replay_birth(Thread& parent, EventIndex index, const Event& event, const SyscallRow& row) {
  const BirthRequest request = birth_request(row, event.args, memory(parent));
  const uint64_t flags = request.flags;
  const EventRef self{what_.unit, index};
  const bool elsewhere = event.child_unit != 0;
  if (elsewhere && !store_.wants_birth(self)) return {};
  RestoredProcess& process = unit_.processes.at(parent.process);
  std::optional<Stub> born;
  pid_t tid = 0;
  if (flags & CLONE_THREAD) {
    ASSIGN_OR_RETURN(tid, process.stub.add_thread(parent.tid));
  } else {
    ASSIGN_OR_RETURN(born, process.stub.fork(parent.tid, flags & CLONE_VM));
    tid = born->pid();
  }
  user_regs_struct regs = parent.regs;
  regs.rax = 0;
  regs.orig_rax = ~0ull;
  if (request.stack) regs.rsp = request.stack;
  if (flags & CLONE_SETTLS) regs.fs = 0, regs.fs_base = request.tls;
  const auto parents = gates_.find(parent.process);
  std::shared_ptr<Gate> gate = parents == gates_.end() ? nullptr : parents->second;
  user_regs_struct physical = regs;
  if (gate) physical.rip = gate->physical(regs.rip);
  if (!redrive::set_regs(tid, physical)) return errno_error("cannot set registers");
  const auto id = static_cast<int32_t>(event.result);
  const Stub& its = born ? *born : process.stub;
  if (flags & CLONE_CHILD_SETTID) its.memory().put(request.child_tid, id);
  if (born) {
    // What cannot be written here the kernel could not write either.
    for (const auto& write : event.child_writes)
      its.memory().write(write.address, write.data.data(), write.data.size());
    if (gate && !(flags & CLONE_VM)) {
      ASSIGN_OR_RETURN(gate, inherit_gate(*gate, its));
    }
    auto descriptors =
        flags & CLONE_VM ? process.descriptors : std::make_shared<LocalDescriptors>(*process.descriptors);
    if (elsewhere) {
      ASSIGN_OR_RETURN(ReleasedStub released, std::move(*born).hand_over());
      store_.publish(self, Birth{std::move(released), process.brk, regs, std::move(descriptors), std::move(gate)});
    } else {
      const ProcessSerial serial = next_process_++;
      if (gate) gates_[serial] = std::move(gate);
      const auto owner = flags & CLONE_VM ? std::optional(process.memory_of.value_or(parent.process)) : std::nullopt;
      unit_.processes.emplace(serial,
                              RestoredProcess{std::move(*born), process.brk, id, owner, std::move(descriptors)});
      threads_[event.child_thread].process = serial;
    }
  }
  if (flags & CLONE_PARENT_SETTID) process.stub.memory().put(request.parent_tid, id);
  if (elsewhere) return {};
  Thread& child = threads_[event.child_thread];
  child.serial = event.child_thread;
  next_thread_ = std::max(next_thread_, event.child_thread + 1);
  if (flags & CLONE_THREAD) child.process = parent.process;
  child.tid = tid;
  child.regs = regs;
  return {};
}

Result<Step> Replayer::replay_effects(Thread& thread, EventIndex index, const Event& event) {
  const auto number = static_cast<int64_t>(thread.regs.orig_rax);
  const std::array<uint64_t, 6> args = syscall_args(thread.regs);
  const SyscallRow* row = find_row(number, args);
  const Special special = row ? row->special : Special::none;
  const bool executes = special == Special::execve || special == Special::execveat;
  thread.stopped_at_syscall = false;
  if (options_.output) output_.call_ends(thread.serial, event.result);
  if (event.registers) {  // of sigreturn, and of what would be executed here but was answered in the kernel's place
    if (!from_bytes(event.registers->general, thread.regs))
      return Error{"an event holds no registers", Status::damaged};
    thread.regs.orig_rax = ~0ull;
    if (!event.registers->xstate.empty()) set_xstate(thread.tid, event.registers->xstate);
    set_regs(thread, thread.regs);
    return Step::as_recorded();
  }
  if (executes && event.result == 0) {
    forget_process(thread.process);
    return Step::as_recorded();
  }
  TRY(change_objects(event));
  if (special != Special::none) {
    Event call = event;
    call.args = args;
    RestoredProcess& process = unit_.processes.at(thread.process);
    ASSIGN_OR_RETURN(const CodeAfter code, code_after(thread.process, call, special, process.brk));
    const auto moved = make_room(thread, call, special);
    StubCalls calls(process.stub, thread.tid);
    if (may_have_changed(call, special)) TRY(replay_failed_memory_call(call, process.stub, thread.tid));
    const bool remaps = special == Special::mremap && !is_error(event.result);
    ASSIGN_OR_RETURN(const bool in_pieces, remaps ? remap_pieces(call, process.stub, calls) : Result<bool>(false));
    if (!in_pieces) TRY(replay_memory_call(call, special, process.stub, process.brk, calls, unit_.shared, file_path_));
    TRY(calls.run());
    if (code == CodeAfter::changed) code_.clear();
    TRY(map_gate(moved, thread.tid));
    constexpr uint64_t kArchSetGs = 0x1001, kArchSetFs = 0x1002;
    if (special == Special::arch_prctl && event.result == 0) {
      if (args[0] == kArchSetFs) thread.regs.fs = 0, thread.regs.fs_base = args[1];
      if (args[0] == kArchSetGs) thread.regs.gs = 0, thread.regs.gs_base = args[1];
    }
    if (special == Special::modify_ldt && event.result == 0) {
      const auto written = descriptor_written(args, memory(thread));
      if (!written) return Error{"a segment's description cannot be read"};
      TRY(process.stub.describe(thread.tid, *written));
      apply(*written, *process.descriptors);
    }
  }
  TRY_STEP(write_memory(thread, index, event));
  if (const auto limit = stack_limit_set_by(event.number, args, event.result)) limit_stack(thread, *limit);
  thread.regs.rax = static_cast<uint64_t>(event.result);
  if (restarts(event.result)) {
    // Unless a handler runs now (the next event says so), the kernel enters the call again.
    thread.regs.rip -= 2;
    thread.regs.rax = static_cast<uint64_t>(event.result == kErestartRestartblock ? SYS_restart_syscall : number);
  }
  thread.regs.orig_rax = ~0ull;
  if (!set_regs(thread, thread.regs)) return errno_error("cannot set registers");
  return Step::as_recorded();
}

// What the event says of shared objects: from then on they, and what it maps so that it can be written, are no copies
// of the trace's, and all that is mapped of them is made anew.
Result<void> Replayer::change_objects(const Event& event) {
  if (event.map && event.map->shared_object && !event.map->file) TRY(make_writable(event.map->shared_object));
  for (const ObjectChange& change : event.changes) {
    TRY(make_writable(change.object));
    TRY(replay_object_change(change, unit_.shared, file_path_));
  }
  return {};
}

Result<void> Replayer::make_writable(uint64_t object) {
  const uint64_t copy = unit_.shared.take_copy(object);
  if (!copy) return {};
  ASSIGN_OR_RETURN(const std::string path, file_path_(copy));
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return errno_error("cannot look at " + path);
  TRY(unit_.shared.resize(object, static_cast<uint64_t>(info.st_size)));
  // Of copies the name says which it is; stat(2) may give another device than /proc/PID/maps shows (btrfs).
  const auto name = [](const std::string& file) { return file.substr(file.rfind('/') + 1); };
  for (const auto& [serial, process] : unit_.processes) {
    ASSIGN_OR_RETURN(const auto mappings, read_mappings(process.stub.pid()));
    StubCalls calls(process.stub, process.stub.pid());
    for (Mapping mapping : mappings) {
      if (!mapping.shared || mapping.inode != info.st_ino || name(mapping.name) != name(path)) continue;
      TRY(unit_.shared.fill(object, mapping.offset, mapping.length(), path));
      mapping.shared_object = object;
      TRY(map(calls, mapping, unit_.shared, file_path_));
    }
    TRY(calls.run());
  }
  return {};
}

// Pages of private file mappings become zero, or come to lie beyond the file's end, as all are behind the end of any
// copy.
Result<void> Replayer::change_pages(const Thread& thread, const MemoryWrite& write) {
  const ProcessSerial owner = memory_owner(thread.process);
  const bool lost = write.kind == MemoryWrite::Kind::beyond_end;
  ASSIGN_OR_RETURN(const auto mappings, program_mappings(owner));
  if (trace_.files().empty()) return Error{"the trace holds no copy of a file that was mapped", Status::damaged};
  StubCalls calls(unit_.processes.at(owner).stub, thread.tid);
  for (const Mapping& mapping : mappings) {
    Mapping changed;
    changed.start = std::max(mapping.start, page_down(write.address));
    changed.end = std::min(mapping.end, page_up(write.address + write.length));
    if (changed.start >= changed.end || mapping.shared) continue;
    changed.protection = mapping.protection;
    if (lost) {
      changed.file = mapping.file ? mapping.file : trace_.files().begin()->first;
      ASSIGN_OR_RETURN(const std::string path, file_path_(changed.file));
      struct stat info {};
      if (stat(path.c_str(), &info) != 0) return errno_error("cannot look at " + path);
      changed.offset = page_up(static_cast<uint64_t>(info.st_size));
    }
    TRY(map(calls, changed, unit_.shared, file_path_));
  }
  TRY(calls.run());
  return {};
}

Result<Step> Replayer::write_memory(Thread& thread, EventIndex index, const Event& event) {
  Bytes message;
  if (event.receive && !event.receive->logged) {
    ASSIGN_OR_RETURN(auto received, messages_.received(*event.receive));
    if (auto* other = std::get_if<OtherContents>(&received)) {
      return diverged(thread, index, std::move(other->expected), std::move(other->found));
    }
    message = std::get<Bytes>(std::move(received));
  }
  uint64_t taken = 0;
  for (const auto& write : event.writes) {
    if (write.changes_pages()) {
      TRY(change_pages(thread, write));
      continue;
    }
    const uint8_t* data = write.data.data();
    if (write.from_message()) {
      if (write.length > message.size() - taken)
        return Error{"an event holds a message that is too short", Status::damaged};
      data = message.data() + taken;
      taken += write.length;
    }
    if (write.length && !memory(thread).write(write.address, data, write.length)) {
      return diverged(thread, index, "writable memory at " + hex(write.address), "none");
    }
  }
  return Step::as_recorded();
}

// A call has set how far the stack of a process may grow: so far it grows here.
void Replayer::limit_stack(const Thread& thread, const StackLimit& limit) const {
  rlimit64 value{};
  if (!memory(thread).get(limit.value, value)) return;
  for (const auto& [serial, process] : unit_.processes) {
    const bool meant = limit.pid ? process.pid == limit.pid : serial == thread.process;
    if (meant) process.stub.limit_stack(value.rlim_cur);
  }
}

Result<Step> Replayer::replay_signal(Thread& thread, EventIndex index, const Event& event) {
  const auto point = static_cast<SignalPoint>(event.args[0]);
  const std::string expected = "signal " + std::to_string(event.number) + " at " + hex(event.ip);
  if (point == SignalPoint::before_syscall || point == SignalPoint::fault) {
    ASSIGN_OR_RETURN(const StopKind stop, run_to_stop(thread));
    const bool right_kind = stop == (point == SignalPoint::fault ? StopKind::fault : StopKind::syscall);
    const uint64_t ip = point == SignalPoint::fault ? thread.regs.rip : thread.regs.rip - 2;
    if (!right_kind || ip != event.ip) {
      return diverged(thread, index, expected, came_to(thread, stop));
    }
    thread.stopped_at_syscall = false;
  }
  if (event.fatal) {
    if (point == SignalPoint::fault) TRY_STEP(verify_last(thread, index, thread.regs));
    TRY_STEP(write_memory(thread, index, event));
    forget_process(thread.process);
    return Step::as_recorded();
  }
  if (!event.registers || !from_bytes(event.registers->general, thread.regs)) {
    return Error{"a signal event holds no registers", Status::damaged};
  }
  TRY_STEP(write_memory(thread, index, event));
  thread.regs.orig_rax = ~0ull;
  if (!event.registers->xstate.empty()) set_xstate(thread.tid, event.registers->xstate);
  if (!set_regs(thread, thread.regs)) return errno_error("cannot set registers");
  return Step::as_recorded();
}

Result<Step> Replayer::replay_trap(Thread& thread, EventIndex index, const Event& event) {
  const auto expected = [&] { return "a trapped instruction at " + hex(event.ip); };
  ASSIGN_OR_RETURN(const StopKind stop, run_to_stop(thread));
  uint8_t code[3] = {};
  const Gate* const gate = stop == StopKind::fault ? gate_of(thread) : nullptr;
  const Address instruction = gate ? gate->physical(thread.regs.rip) : thread.regs.rip;
  if (stop == StopKind::fault) memory(thread).read_some(instruction, code, sizeof code);
  const bool cpuid = event.number == static_cast<int32_t>(Trap::cpuid);
  const auto trapped = cpuid && stands_for_cpuid(code) ? cpuid_instruction() : decode_trapped(code);
  if (stop != StopKind::fault || thread.regs.rip != event.ip || !trapped || trapped->instruction != event.number) {
    return diverged(thread, index, expected(), came_to(thread, stop));
  }
  if (cpuid && (thread.regs.rax != event.args[4] || thread.regs.rcx != event.args[5])) {
    return diverged(thread, index, expected() + ", leaf " + hex(event.args[4]), "leaf " + hex(thread.regs.rax));
  }
  thread.regs.rip += static_cast<uint64_t>(trapped->length);
  thread.regs.rax = event.args[0];
  thread.regs.rbx = event.args[1];
  thread.regs.rcx = event.args[2];
  thread.regs.rdx = event.args[3];
  thread.regs.orig_rax = ~0ull;
  if (!set_regs(thread, thread.regs)) return errno_error("cannot set registers");
  return Step::as_recorded();
}

// What the system calls that a checkpoint caught threads in went on to write. The kernel may have written it before the
// checkpoint or after; the program can tell only from the calls' exits on. Of a call that has none, because its thread
// or the recorder was killed, what it could have written.
Result<std::vector<AddressRange>> Replayer::pending_outputs(const UnitState& state, EventIndex from) const {
  std::set<ThreadSerial> pending;
  for (const auto& thread : state.threads) {
    if (thread.in_syscall) pending.insert(thread.thread);
  }
  std::vector<AddressRange> ranges;
  const auto visit = [&](EventIndex, const Event& event) {
    if (event.kind == EventKind::exit && pending.erase(event.thread)) {
      for (const auto& write : event.writes) ranges.push_back({write.address, write.address + write.length});
    }
    return !pending.empty();
  };
  if (!pending.empty()) TRY(trace_.for_each_event(what_.unit, from, trace_.event_count(what_.unit), visit));
  for (const auto& saved : state.threads) {
    const auto thread = threads_.find(saved.thread);
    if (!pending.contains(saved.thread) || thread == threads_.end()) continue;
    user_regs_struct regs = saved.regs;
    const auto args = syscall_args(regs);
    const SyscallRow* const row = find_row(static_cast<int64_t>(regs.orig_rax), args);
    if (!row) continue;
    for (const Span& span : possible_outputs(args, entry_sizes(*row, args, memory(thread->second)))) {
      ranges.push_back({span.address, span.address + span.length});
    }
  }
  return ranges;
}

// Before an event that ends the program: compares with what the recorder has noted there, if that is where the interval
// ends.
Result<Step> Replayer::verify_last(Thread& thread, EventIndex index, const user_regs_struct& regs) {
  const IntervalEnd* const end = trace_.interval_end(what_.unit, what_.interval);
  if (!options_.verify || !end || end->state.empty() || index + 1 != end_ || end->end_event != end_) {
    return Step::as_recorded();
  }
  const auto expected = decode_end_state(end->state);
  if (!expected) return Error{"the state at an interval's end cannot be understood", Status::damaged};
  remove_gate(thread.process);
  const auto found = read_end_state(regs, get_xstate(thread.tid), memory(thread), expected->pages);
  const auto differ = [&](const std::string& what) {
    return diverged(thread, index, what + " that the program ended with", found ? "others" : "none");
  };
  if (!found || found->memory != expected->memory) return differ("the memory");
  if (found->registers != expected->registers) return differ("the registers");
  const bool comparable = found->extended_size == expected->extended_size;
  if (comparable && found->extended != expected->extended) return differ("the extended registers");
  end_verified_ = true;
  return Step::as_recorded();
}

// Compares with the checkpoint that follows: all registers, and every page that either side holds.
Result<Verification> Replayer::verify_end() {
  const auto& intervals = trace_.intervals(what_.unit);
  const IntervalIndex next = what_.interval + 1;
  if (end_verified_) return Verification(Verified{});
  const bool whole = next < intervals.size() && intervals[next].first_event == end_;
  if (!whole || intervals[next].kind != CheckpointKind::image) {
    const IntervalEnd* const end = trace_.interval_end(what_.unit, what_.interval);
    return Verification(
        Unverified{!whole && (!end || end->end_event != end_) ? "only the events before its end were executed"
                   : end && !end->state.empty() ? "the state at its program's end was noted before its last event"
                                                : "it ends with its program, and no state was noted there"});
  }
  if (!intervals[next].has_image) return Verification(Unverified{kNoImageAtEnd});
  ASSIGN_OR_RETURN(const Image image, trace_.image(what_.unit, next));
  UnitState expected;
  Decoder header(image.header);
  if (!decode(header, expected)) {
    return Error{"the image of interval " + std::to_string(next) + " cannot be understood", Status::damaged};
  }
  ASSIGN_OR_RETURN(const auto kind, kind_of_event(end_));
  if (kind == EventKind::preemption && threads_.contains(expected.trigger)) {
    ASSIGN_OR_RETURN(const SearchEnd search, run_to_place(expected.trigger, end_, next));
    if (const auto* difference = std::get_if<Difference>(&search)) return Verification(*difference);
    if (const auto* not_found = std::get_if<NotFound>(&search)) return Verification(Unverified{not_found->why});
  }
  for (const auto& saved : expected.threads) {
    if (saved.thread >= expected.first_joined_thread) continue;
    const auto found = threads_.find(saved.thread);
    if (found == threads_.end()) {
      return Verification(Difference{end_, std::nullopt, "thread " + std::to_string(saved.thread), "no such thread"});
    }
    Thread& thread = found->second;
    // The thread whose next event begins the next interval has still to get there, unless it is there (a new thread, an
    // exit).
    user_regs_struct wanted = saved.regs;
    wanted.orig_rax = thread.regs.orig_rax;
    if (saved.thread == expected.trigger && !saved.in_syscall && !same_registers(wanted, thread.regs)) {
      ASSIGN_OR_RETURN(const StopKind stop, run_to_stop(thread));
      if (stop != StopKind::syscall) {
        return Verification(difference(thread, end_, "a system call at " + hex(saved.regs.rip), came_to(thread, stop)));
      }
      thread.regs = before_syscall(thread.regs);
    }
    if (!same_registers(wanted, thread.regs)) {
      return Verification(difference(thread, end_,
                                     "registers of the next checkpoint: " + describe_registers(saved.regs),
                                     describe_registers(thread.regs)));
    }
    // For a thread in a call, the recording may have read them at another moment.
    if (!saved.in_syscall && !saved.xstate.empty() && !same_xstate(saved.xstate, get_xstate(thread.tid))) {
      return Verification(difference(thread, end_, "the extended registers of the next checkpoint", "others"));
    }
  }
  for (const auto& process : expected.processes) {
    if (process.process >= expected.first_joined_process) continue;
    const auto found = unit_.processes.find(process.process);
    if (found == unit_.processes.end()) {
      return Verification(
          Difference{end_, std::nullopt, "process " + std::to_string(process.process), "no such process"});
    }
    if (process.memory_of) continue;
    remove_gate(process.process);
    const Stub& stub = found->second.stub;
    ASSIGN_OR_RETURN(auto differs, memory_difference(trace_, image, expected, process, stub, {}));
    if (differs) {
      ASSIGN_OR_RETURN(const auto pending, pending_outputs(expected, end_));
      ASSIGN_OR_RETURN(differs, memory_difference(trace_, image, expected, process, stub, pending));
    }
    if (differs) {
      return Verification(Difference{end_, expected.trigger, "the memory of the next checkpoint",
                                     "other contents at " + hex(*differs)});
    }
  }
  return Verification(Verified{});
}

}  // namespace redrive
