#include "supervisor/record/recorder.h"

#include <sched.h>
#include <sys/syscall.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/notice.h"
#include "base/overloaded.h"
#include "base/text.h"
#include "interceptors/payload.h"
#include "supervisor/record/front.h"
#include "supervisor/record/interrupts.h"
#include "supervisor/record/robust_futexes.h"
#include "supervisor/tier/births.h"
#include "supervisor/tier/memory_calls.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr auto kLeaving = 100ms;   // for the others to end when the program has
constexpr auto kBatonSlice = 5ms;  // at the next event after this, waiting threads get the baton
constexpr auto kShortestTick = 1ms;
constexpr auto kCrowdedTick = 4ms;      // while several units compute
constexpr auto kPlaced = 3500us;        // from one look at where units run to the next
constexpr uint64_t kUsed = 100'000;     // CPU time since the last look from which on a unit is looked at
constexpr uint64_t kOften = 1'000'000;  // sleeps
constexpr size_t kBatches = 2;          // of events to be made: so many copies_ hold what they are made of
// A checkpoint that the unit was asked for comes where it is, if not at a call before: this part of T later.
constexpr uint64_t kStoppedAfter = 32;

// To the first process, or to all that are left when that has ended.
template <typename Threads>
void pass_on(Tracer& tracer, int signal, const Threads& threads, pid_t first) {
  std::set<pid_t> processes;
  for (const auto& [tid, thread] : threads) processes.insert(thread->process->pid);
  if (processes.contains(first)) processes = {first};
  for (const pid_t process : processes) tracer.send(process, signal);
}

// Which processors the caller may run on, or runs on.
bool asks_processors(const SyscallRow& row) { return row.number == SYS_sched_getaffinity || row.number == SYS_getcpu; }

}  // namespace

pid_t tid_named(const Thread& caller, uint64_t number) {
  const auto named = static_cast<pid_t>(number);
  if (named == 0) return caller.tid;
  const pid_t own = pid_in_own_namespace(caller.tid);
  if (named == own) return caller.tid;
  return own == caller.tid ? named : -1;
}

Recorder::Recorder(Tracer& tracer, TraceWriter& writer, Policy& policy, RecorderLimits limits, FileCache* cache)
    : tracer_(tracer),
      stops_(tracer),
      calls_(tracer, [this](pid_t tid) { return wait_stop(tid); }),
      tier_mapper_(tracer, calls_),
      writer_(writer),
      limits_(limits),
      placement_(limits.processors),
      processors_(placement_.seen(), limits.processors_seen),
      adapted_files_(processors_),
      messages_(writer, policy),
      images_(writer),
      plans_(cache),
      cpuid_(cache),
      patcher_(plans_, cpuid_) {
  if (!limits.in_process) return;
  if (auto arena = GateArena::make()) {
    arena_ = std::move(*arena);
  } else {
    notice("{}; every system call will stop", arena.error().message);
  }
  cpu_set_t processors;
  const bool several = sched_getaffinity(0, sizeof processors, &processors) == 0 && CPU_COUNT(&processors) > 1;
  if (arena_ && several) {
    event_maker_ = std::make_unique<WriteBehind<std::vector<Served>>>(
        kBatches, [this](std::vector<Served>& sources) { make_events(sources); });
  }
}

Thread* Recorder::find(pid_t tid) {
  const auto it = threads_.find(tid);
  return it == threads_.end() ? nullptr : it->second.get();
}

void Recorder::add_unsure(Unit& unit, const std::string& reason) { add_unsure(unit, reason, unit.log.next()); }

void Recorder::add_unsure(Unit& unit, const std::string& reason, EventIndex from) {
  const bool said = std::any_of(unsure_.begin(), unsure_.end(),
                                [&](const Unsure& u) { return u.unit == unit.id && u.reason == reason; });
  if (said) return;
  unsure_.push_back({unit.id, from, reason});
  writer_.add(unsure_.back());
}

LeftBehind Recorder::left_behind() const {
  std::set<const Process*> processes;
  for (const auto& [tid, thread] : threads_) processes.insert(thread->process);
  return {root_end_.shell_status(), processes.size()};
}

RecordingEnd Recorder::run(const std::function<void(const LeftBehind&)>& left_behind) {
  const auto started = tracer_.now();
  bool told = false;
  next_tick_ = started + kTick;
  while (!threads_.empty()) {
    if (!stops_.fill()) break;
    if (const auto next = stops_.take()) handle(*next);
    for (const int signal : take_interrupts()) pass_on(tracer_, signal, threads_, root_);
    if (tracer_.now() >= next_tick_) tick();
    if (root_ended_ && !told && !threads_.empty() && tracer_.now() - *root_ended_ > kLeaving) {
      told = true;
      left_behind(this->left_behind());
    }
  }
  drain();
  for (auto& [id, unit] : units_) {
    unit->log.flush();
    end_interval(*unit);
    end_messages(*unit);
    add_calls(*unit);
  }
  images_.close();
  collect_images();
  messages_.write_channels();
  add_sites();
  plans_.keep();
  RecordingEnd end;
  end.exit_status = root_end_.shell_status();
  const bool interrupted = root_end_.killed() && was_interrupted_by(root_end_.signal);
  end.reason = interrupted ? "interrupted" : root_end_.killed() ? "killed by a signal" : "exited";
  end.wall_s = std::chrono::duration<double>(tracer_.now() - started).count();
  end.skipped_checkpoints = skipped_checkpoints_;
  return end;
}

// A full disk ends the trace, not the program.
void Recorder::flush() {
  const auto flushed = writer_.write_behind();
  if (flushed || std::exchange(write_failed_, true)) return;
  notice("{}; recording has stopped; the program continues", flushed.error().message);
}

void Recorder::end_copy(pid_t copy) {
  tracer_.send(copy, SIGKILL);
  for (auto stop = tracer_.wait(copy); stop && !is<Gone>(*stop); stop = tracer_.wait(copy)) {
    tracer_.resume(copy, Resume::cont);
  }
}

// How a unit's calls were recorded, and which were refused.
void Recorder::add_calls(const Unit& unit) {
  writer_.add(Interception{unit.id, unit.served_calls, unit.stopped_calls});
  for (const auto& [what, refusal] : unit.refusals) {
    writer_.add(refusal);
    if (refusal.common) continue;
    Refused& sum = refused_[what + " (" + refusal.answer + ")"];
    sum.count += refusal.count;
    if (sum.units++ < Refused::kNamed) sum.first.push_back(unit.id);
  }
}

void Recorder::add_sites() {
  constexpr size_t kSites = 100;
  for (const auto& [plan, site] : plans_.worst(kSites)) {
    writer_.add(StoppingSite{plan->name(), site->offset, name_of(site->kind), site->stops, site->window.has_value()});
  }
}

// Ends the copies whose images are stored.
void Recorder::collect_images() {
  for (auto& done : images_.take_done()) {
    if (done.error) ++skipped_checkpoints_;
    if (done.copy < 0) continue;
    end_copy(done.copy);
    if (Thread* original = find(done.original)) {
      original->process->copies_to_reap.push_back(done.copy);
      ask_to_stop(*original);
    }
  }
}

// Before a process changes its group: the end of a copy that stayed in the former one would leave that orphaned, and
// the kernel hangs up on orphaned groups with stopped members (setpgid(2), _exit(2)).
void Recorder::end_copies() {
  if (images_.copies_alive() == 0) return;
  images_.wait_until_idle();
  collect_images();
}

// The next one comes when a unit may have to be asked or stopped for a checkpoint. A unit's threads run one
// at a time, so none gets there before so much time has passed; but served calls let its clock go faster than that.
// What is decided here may be as old as the last tick: events of what was served since are made, while the programs go
// on.
void Recorder::tick() {
  if (event_maker_) {
    event_maker_->wait_until_idle();
  } else {
    drain();
  }
  collect_images();
  forget_unmapped_objects();
  look_for_outside_writers();
  messages_.write_channels();
  ask_at_each_event();
  auto next = std::chrono::nanoseconds(kTick);
  for (auto& [id, unit] : units_) {
    wake_for_checkpoint(*unit);
    Thread* holder = unit->baton.holder();
    if (!holder || holder->run != Thread::Run::user) continue;
    note_sleep(*holder);
    const bool checkpoint = checkpoint_due(*unit);
    if (checkpoint) unit->last_clock_check = {};  // it is to be asked again at the next call
    watch(*unit, checkpoint);
    if (unit->period_ns == 0) continue;
    const uint64_t at_ns = unit->clock.interval_ns(), asked_ns = checkpoint_at_ns(*unit);
    const uint64_t due_ns = at_ns < asked_ns ? asked_ns : asked_ns + unit->period_ns / kStoppedAfter;
    next = std::min(next, std::chrono::nanoseconds((due_ns - std::min(due_ns, at_ns)) / 3));
  }
  place_units();
  flush();
  if (event_maker_) make_events_behind();
  if (crowded_) next = std::min<std::chrono::nanoseconds>(next, kCrowdedTick);
  next = std::max<std::chrono::nanoseconds>(next, kShortestTick);
  next_tick_ = tracer_.now() + next;
  tracer_.wake_within(std::chrono::duration_cast<std::chrono::microseconds>(next));
}

// Sends units that compute to other processors, and calls back those that stop or sleep often.
void Recorder::place_units() {
  const auto now = tracer_.now();
  if (placement_.one_processor() || now - placed_ < kPlaced) return;
  const auto last = std::exchange(placed_, now);
  std::vector<UnitUse> uses;
  std::vector<Unit*> users;
  for (auto& [id, unit] : units_) {
    Place& place = unit->place;
    const uint64_t cpu = unit->clock.cpu_ns();
    UnitUse use{&place, cpu - std::exchange(place.cpu_ns, cpu)};
    if (use.cpu_ns < kUsed) continue;
    const pid_t tid = unit->baton.is_held() ? unit->baton.holder()->tid : -1;
    const uint64_t sleeps = tid < 0 ? 0 : sleeps_of(tid);
    // Threads that take turns stop for it.
    use.sleeps = tid < 0 || std::exchange(place.tid, tid) != tid ? kOften : sleeps - place.sleeps;
    place.sleeps = sleeps;
    uses.push_back(use);
    users.push_back(unit.get());
  }
  crowded_ = placement_.decide(uses, static_cast<uint64_t>(std::chrono::nanoseconds(now - last).count())) > 1;
  for (size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].moved) place(*users[i]);
  }
}

// A new program stops often, but others may need home all the time.
void Recorder::place_program(Unit& unit) const {
  if (placement_.one_processor()) return;
  size_t home = 0, away = 0;
  for (const auto& [id, other] : units_) {
    const Thread* const holder = other->baton.holder();
    if (other.get() == &unit || !holder || holder->run != Thread::Run::user) continue;
    const gate::Slot* const slot = slot_of(*holder);
    if (!slot || slot->phase != gate::Phase::kernel) ++(other->place.away ? away : home);
  }
  constexpr unsigned kSettles = 2;
  if (!placement_.begins_away(home, away)) return;
  unit.place.away = true;
  unit.place.settles = kSettles;
  place(unit);
}

void Recorder::place(const Unit& unit) const {
  for (const auto& [serial, thread] : unit.threads) placement_.send(thread->tid, unit.place.away);
}

// The thread has asked where one may run, or runs, and the kernel has answered. Returns the call's result.
int64_t Recorder::answer_processors(const Thread& thread, int64_t result) {
  const Memory& memory = thread.process->memory;
  if (thread.row->number == SYS_getcpu) {
    SeenProcessors::get_processor(thread.processors, thread.args, memory);
    return result;
  }
  const Thread* const named = find(tid_named(thread, thread.args[0]));
  return named ? processors_.get_affinity(named->processors, thread.args, memory, result) : result;
}

// The thread has moved one to other processors, as far as the kernel lets it run there. Returns the call's result.
int64_t Recorder::move_to_processors(const Thread& thread, int64_t result) {
  if (!processors_.count() && result != 0) return result;
  Thread* const moved = find(tid_named(thread, thread.args[0]));
  if (!moved) return result;
  if (processors_.count()) {
    result = processors_.set_affinity(moved->processors, thread.args, thread.process->memory, result);
  } else if (sched_getaffinity(moved->tid, sizeof moved->processors, &moved->processors) != 0) {
    return result;
  }
  if (result == 0) placement_.send(moved->tid, moved->process->unit->place.away);
  return result;
}

// Right behind a stop. Interrupts the unit's running thread if it is due to make an event for long and does not.
void Recorder::watch(Unit& unit, bool checkpoint_due) {
  Thread& holder = *unit.baton.holder();
  const auto now = tracer_.now();
  const bool others_wait = (unit.baton.is_awaited() || !unit.joining.empty() || !unit.writers.empty()) &&
                           now - unit.baton.since() > kBatonSlice;
  const bool signal_waits = !holder.signals.empty() && now - holder.signals.since() > kBatonSlice;
  const bool late = unit.period_ns && !limits_.virtual_checkpoints && unit.in_interval &&
                    unit.clock.interval_ns() > checkpoint_at_ns(unit) + unit.period_ns / kStoppedAfter;
  if (checkpoint_due || others_wait) ask_to_stop(holder);
  if (!late && !others_wait && !signal_waits) {
    unit.patience.reset();
    return;
  }
  const bool can_stop = images_.copies_alive() < limits_.copies;
  const auto due = late ? Patience::Due::at_once : Patience::Due::soon;
  const auto answer = unit.patience.look(due, unit.clock.cpu_ns(), can_stop);
  if (answer.gave_up) add_unsure(unit, "a thread that makes no system call could not be stopped where it is");
  if (answer.interrupt) holder.preempting = tracer_.interrupt(holder.tid);
}

void Recorder::handle(const Stopped& stopped) {
  const auto& [tid, stop] = stopped;
  Thread* found = find(tid);
  if (found && is<SyscallEntry>(stop) && serve_again(*found)) return;
  drain();
  report_outside_changes();  // before what has it mapped is gone
  ask_at_each_event();
  forget_ended_units();
  if (const auto* gone = std::get_if<Gone>(&stop)) {
    ended(tid, gone->end);
    return;
  }
  if (found) empty_ring(*found);
  if (const auto* exec = std::get_if<Exec>(&stop)) {
    executed(tid, exec->former_tid);
    return;
  }
  if (found) {
    handle(*found, stop);
  } else if (is<Exiting>(stop)) {
    tracer_.resume(tid, Resume::cont);
  } else if (is_lost_copy(tid)) {
    end_copy(tid);
  } else {
    early_.insert(tid);
  }
}

// The end of a thread and the begin of a program are handled before: they may be of a thread with another number.
void Recorder::handle(Thread& thread, const Stop& stop) {
  // It is about to be killed, or has been, and its registers may still be there: nothing more happens in it.
  if (thread.process->end_logged && !is<Exiting>(stop)) return;
  std::visit(Overloaded{
                 [&](const SyscallEntry&) { handle_seccomp_stop(thread); },
                 [&](const SyscallExit&) { handle_syscall_exit(thread); },
                 [&](const Birth& birth) { born(thread, birth.child); },
                 [&](const SignalStop& stopped) { handle_signal(thread, stopped.signal); },
                 [&](const GroupStop& stopped) { handle_group_stop(thread, stopped.signal); },
                 [&](const Interrupted&) { handle_interrupted(thread); },
                 [&](const Exiting& exiting) { exits(thread, exiting.end); },
                 [](const Exec&) { CHECK(!"an exec is handled before"); },
                 [](const Gone&) { CHECK(!"an end is handled before"); },
             },
             stop);
}

void Recorder::handle_group_stop(Thread& thread, int signal) {
  if (thread.run == Thread::Run::starting) {
    take_or_queue(thread, Thread::Stop::start);
    return;
  }
  if (thread.process->pid == root_) stop_front(signal);
  stop_with_group(thread);
}

// A thread has been born, its group goes on, or it was interrupted by us.
void Recorder::handle_interrupted(Thread& thread) {
  if (thread.process->pid == root_) continue_front();
  if (thread.run == Thread::Run::starting) {
    take_or_queue(thread, Thread::Stop::start);
  } else if (thread.run == Thread::Run::stopped) {
    take_or_queue(thread, Thread::Stop::continued);
  } else if (thread.asleep) {
    disturb(thread, thread.asked_to_stop);
  } else {
    bool handled = false;
    const bool in_user = thread.run == Thread::Run::user;
    const bool due = std::exchange(thread.preempting, false) && in_user;
    if (due && (preempt(thread, handled) || handled)) return;
    if (in_user && end_cut_short(thread, 0)) return;
    if (in_user) leave_gate(thread);
    resume(thread, in_user ? Resume::cont : Resume::to_syscall_exit);
  }
}

void Recorder::resume(const Thread& thread, Resume how, int signal) { tracer_.resume(thread.tid, how, signal); }

void Recorder::resume_user(Thread& thread, const user_regs_struct& regs) {
  runs_from(thread, regs);
  resume(thread, Resume::cont);
}

// It is about to be resumed there.
void Recorder::runs_from(Thread& thread, const user_regs_struct& regs) {
  if (!thread.process->written.empty()) {
    add_written(thread, after_restart(regs), thread.rewound ? SignalPoint::before_syscall : SignalPoint::boundary);
  }
  thread.resumed = regs;
  thread.run = Thread::Run::user;
  set_slot(thread);
}

// Lets the thread enter again the syscall at whose entry (or cancelled entry) it is stopped.
void Recorder::rewind(Thread& thread, const user_regs_struct& entry) {
  const user_regs_struct regs = before_syscall(entry);
  set_regs(thread, regs);
  thread.rewound = true;
  resume_user(thread, regs);
}

void Recorder::handle_seccomp_stop(Thread& thread) {
  if (thread.run == Thread::Run::starting) {
    resume(thread, Resume::cont);  // the launcher, before its program begins
    return;
  }
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return;
  const Gate* const gate = thread.process->gate.get();
  if (gate && regs.rip == arena_->header().boundary) {
    thread.asleep ? woke(thread, regs) : at_boundary(thread, regs);
    return;
  }
  if (arena_ && (regs.rip == arena_->header().executed || regs.rip == arena_->header().injected)) {
    end_intruder(thread);
    return;
  }
  if (gate) {
    gate->make_canonical(regs);
    cancel_pending(thread);
  }
  thread.entry = regs;
  if (in_vsyscall_page(regs.rip)) {
    answer_vsyscall(thread);
  } else if (!patch(thread)) {
    enter(thread);
  }
}

// It has jumped to an instruction of the tier's, to make a call there that the tier does not make. The call is not
// made.
void Recorder::end_intruder(const Thread& thread) {
  const Process& process = *thread.process;
  notice("process {} ({}) tried to make system calls with redrive's own code, and was killed", process.pid,
         printable(process.command));
  tracer_.send(process.pid, SIGKILL);
}

void Recorder::handle_syscall_exit(Thread& thread) {
  if (thread.run == Thread::Run::syscall) {
    leave(thread);
  } else {
    take_or_queue(thread, Thread::Stop::exit);
  }
}

void Recorder::take_or_queue(Thread& thread, Thread::Stop stop) {
  thread.run = Thread::Run::ready;
  thread.stop = stop;
  Unit& unit = *thread.process->unit;
  if (!thread.tracer) unit.baton.queue(thread);
  take_from_sleeper(unit);
  schedule(unit);
}

void Recorder::give_up_baton(Unit& unit) {
  unit.baton.give_up();
  schedule(unit);
}

// The image that a joined unit needs before anybody in it goes on, at a thread that is stopped. False: this one was
// killed.
bool Recorder::begin_joined_interval(Unit& unit, Thread& thread) {
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return false;
  begin_interval(unit, CheckpointKind::image, *thread.process, 0);
  store_now(unit, thread, nullptr);
  if (thread.left_out) end_interval(unit);
  unit.checkpoint_first = thread.left_out;
  return !thread.left_out;
}

void Recorder::schedule(Unit& unit) {
  if (unit.baton.is_held() || unit.joins) return;
  if (!unit.joining.empty()) absorb(unit);
  let_write(unit);
  if (unit.baton.is_held()) return;
  Thread* next = nullptr;
  do {
    next = unit.baton.next();
    if (!next) return;
  } while (next->process->end_logged || (unit.checkpoint_first && !begin_joined_interval(unit, *next)));
  Thread& thread = *next;
  unit.baton.take(thread, tracer_.now());
  unit.patience.reset();
  switch (std::exchange(thread.stop, Thread::Stop::none)) {
    case Thread::Stop::start:
      start(thread);
      break;
    case Thread::Stop::exit:
      leave(thread);
      break;
    case Thread::Stop::preempted:
      go_on(thread, true);
      break;
    case Thread::Stop::continued:
      thread.xstate.clear();
      if (user_regs_struct regs; get_regs(thread, regs)) resume_user(thread, regs);
      break;
    case Thread::Stop::none:
      CHECK(!"a thread without a stop is ready");
  }
}

void Recorder::start(Thread& thread) {
  user_regs_struct regs;
  if (thread.process->inherited) {
    if (!tracer_.get_regs(thread.tid, regs)) return;
    regs.orig_rax = ~0ull;
    if (!inherit_gate(thread, regs, std::exchange(thread.process->inherited, nullptr))) return;
  }
  if (!get_regs(thread, regs)) return;
  if (std::exchange(thread.hides_untraced, false)) {
    regs.rdi |= CLONE_UNTRACED;
    set_regs(thread, regs);
  }
  ask_for_exit(thread);
  if (std::exchange(thread.image_at_birth, false)) store_now(*thread.process->unit, thread, &regs);
  resume_user(thread, regs);
}

Event& Recorder::open_event(Thread& thread) {
  Event& event = thread.process->unit->log.open();
  event.thread = thread.serial;
  event.number = static_cast<int32_t>(thread.entry.orig_rax);
  event.args = thread.args;
  event.ip = thread.entry.rip;
  event.regs_hash = preserved_registers_hash(thread.entry);
  return event;
}

void Recorder::enter(Thread& thread) {
  Unit& unit = *thread.process->unit;
  thread.asked_to_stop = false;
  // A signal is delivered before the call. But a stop lets others run, which the log says only of calls: it is
  // delivered as if it had come amid this one.
  const bool stops = thread.signals.begins_with_stop();
  if (!stops && raise_held(thread)) {
    rewind(thread, thread.entry);
    return;
  }
  if (!thread.process->copies_to_reap.empty()) {
    reap_copies(thread);
    return;
  }
  if (!unit.joining.empty()) absorb(unit);
  const bool must_come = std::exchange(unit.checkpoint_first, false);
  if (must_come || checkpoint_due(unit)) {
    if (!must_come && limits_.virtual_checkpoints) {
      note_checkpoint(*thread.process);
    } else {
      checkpoint(thread);
      return;
    }
  }
  ask_for_exit(thread);
  thread.rewound = false;
  thread.woken |= thread.preempting;  // that will wake it up
  ++unit.stopped_calls;
  thread.args = syscall_args(thread.entry);
  thread.row = find_row(static_cast<int64_t>(thread.entry.orig_rax), thread.args);
  let_write(unit);
  if (!thread.process->written.empty()) {
    add_written(thread, before_syscall(thread.entry), SignalPoint::before_syscall);
  }
  if (forbidden(thread)) return;
  const RecordedGate* const gate = thread.process->gate.get();
  const bool changes_tier = gate && thread.row && gate->is_changed_by(thread.row->special, thread.args);
  const bool described = thread.row && is_described(*thread.row, thread.args, thread.process->memory);
  if (!described || thread.row->treat == Treat::refuse || !mappable(thread) || changes_tier) {
    refuse(thread, thread.row);
    return;
  }
  const SyscallRow& row = *thread.row;
  if (row.special == Special::seccomp) {
    confine(thread);
    return;
  }
  if (answer_tracer(thread)) return;
  if (Unit* const written = written_unit(thread); written || row.special == Special::write_process) {
    enter_write(thread, written);
    return;
  }
  if (row.number == SYS_setpgid || row.number == SYS_setsid) end_copies();
  if (Unit* other = unit_to_join_for_change(thread)) {
    set_regs(thread, before_syscall(thread.entry));
    thread.rewound = true;
    join_unit(thread, Thread::Stop::start, *other, objects_.find(thread.changes_object)->name);
    return;
  }
  // A page that a file loses is lost to the copies too.
  if (thread.changes_object && row.file_change != FileChange::writes) end_copies();
  if (Unit* const looks = unit_that_looks(thread)) {
    enter_write(thread, looks);
    return;
  }
  const bool may_sleep = row.lock_word ? waits_for_lock(thread) : row.may_block;
  open_call(thread, Memory::snapshot(thread.process->memory));
  open_adapted(thread);
  Messages::forget_closed(message_call(thread, thread.process->memory),
                          false);  // others may use the number before its exit is seen
  if (row.special == Special::exit_group || row.special == Special::exit) {
    end_thread(thread, row.special == Special::exit_group);
    return;
  }
  if (row.special == Special::execve || row.special == Special::execveat) {
    note_end_state(thread, before_syscall(thread.entry));
  }
  thread.run = Thread::Run::syscall;
  if (is_birth(row)) {
    hide_untraced(thread);
    see_birth(thread);
    return;
  }
  // Even a call that does not sleep lets others run after a while, unless a replay executes it, at its end, or it
  // changes memory that others see: what it does to memory others find done. Its entry is logged first: what the thread
  // did before it stays before what the others do.
  const bool slice_over = row.treat != Treat::special && !row.lock_word && unit.baton.is_awaited() &&
                          tracer_.now() - unit.baton.since() > kBatonSlice;
  const bool lets_others_run = !thread.changes_object && ((may_sleep && !alone(unit)) || slice_over);
  if (lets_others_run) thread.xstate = tracer_.get_xstate(thread.tid);
  shorten_timeout(thread);
  if (stops) raise_held(thread);
  resume(thread, Resume::to_syscall_exit);
  if (lets_others_run) {
    if (row.lock_word) let_sleep(thread);
    thread.run = Thread::Run::blocked;
    give_up_baton(unit);
  }
}

// The child is noted in the open event, so nothing may happen in the unit until it is born: not even the end of another
// process, or of its execve.
void Recorder::see_birth(Thread& thread) {
  resume(thread, Resume::to_syscall_exit);
  if (const auto stop = wait_stop(thread.tid)) handle(Stopped{thread.tid, *stop});
}

// A call begins, with thread.entry, args and row; `memory` is the thread's at its entry.
void Recorder::open_call(Thread& thread, const Memory& memory) {
  const SyscallRow& row = *thread.row;
  Event& event = open_event(thread);
  inputs(row, thread.args, memory, spans_);
  event.in_hash = hash_spans(spans_, memory, scratch_);
  if (row.number == SYS_restart_syscall) {
    // Its outputs are those of the call that it restarts, whose description is still there.
    thread.row = thread.restarting ? thread.restarting : &row;
  } else {
    thread.restarting = nullptr;
    entry_sizes(row, thread.args, memory, thread.sizes);
    thread.output_args = thread.args;
  }
  note_asked(thread, memory);
  thread.sending.clear();
  if (row.traffic == Traffic::send) {
    Unit& unit = *thread.process->unit;
    const Messages::Place place{unit.id, unit.log.next() - 1, unit.clock};
    messages_.begin_send(message_call(thread, memory), place, spans_, thread.sending, event);
  }
}

Messages::Call Recorder::message_call(const Thread& thread, const Memory& memory) {
  const Process& process = *thread.process;
  return {*thread.row, thread.args, memory, *process.fds, process.pidfd.get(), process.gate.get()};
}

// What is behind the descriptor in an argument, valid until the next call; null if that cannot be told.
const Endpoint* Recorder::endpoint(Thread& thread, int fd_arg) {
  return messages_.endpoint(message_call(thread, thread.process->memory), fd_arg);
}

// At a call's exit: what its event has written becomes a message, or input.
void Recorder::receive(Thread& thread, int64_t result, const Memory& memory, Event& event) {
  Unit& unit = *thread.process->unit;
  const Messages::Place place{unit.id, unit.log.closing_index(), unit.clock};
  const auto received = messages_.receive(message_call(thread, memory), place, result, event);
  unit.received |= received.message;
  if (received.checkpoint_wanted) unit.checkpoint_wanted = true;
}

// Nobody runs in it any more, and all that it received is known.
void Recorder::end_messages(const Unit& unit) {
  if (unit.next_interval != 0) messages_.end_unit(unit.id, unit.ended_ns);
}

// At the entry of exit or exit_group, which does not return.
void Recorder::end_thread(Thread& thread, bool whole_process) {
  Process& process = *thread.process;
  Unit& unit = *process.unit;
  const bool leader = thread.tid == process.pid;
  const bool last = whole_process || process.threads - (process.leader_exited ? 1 : 0) == 1;
  process.end_logged |= last;
  process.leader_exited |= leader;
  thread.exited = true;
  unit.clock.cpu_ns();  // asked for the last time while the process lives
  if (last) {
    note_end_state(thread, before_syscall(thread.entry));
    check_views(process);
    look_before_end(process);
  }
  Event& event = unit.log.closing(thread.serial, static_cast<int32_t>(thread.entry.orig_rax));
  event.fatal = true;
  for (const auto& [serial, other] : unit.threads) {
    const bool ends = other == &thread || (whole_process && other->process == &process);
    if (ends) note_thread_end(*other, last, event);
  }
  unit.log.close(false);
  if (!whole_process) pass_on_held(thread);
  thread.run = Thread::Run::syscall;
  resume(thread, Resume::cont);
  // A leader's end is reported only after its last thread's; the others go on meanwhile.
  if (leader && !last) give_up_baton(unit);
}

void Recorder::count_refusal(Unit& unit, const std::string& what, const std::string& answer, bool common) {
  Unit::Refused& refusal = unit.refusals[what];
  refusal.common = common;
  refusal.unit = unit.id;
  refusal.what = what;
  refusal.answer = answer;
  ++refusal.count;
}

void Recorder::count_refusal(const Thread& thread, const SyscallRow* row, int error) {
  count_refusal(*thread.process->unit, call_name(static_cast<int64_t>(thread.entry.orig_rax), thread.args),
                std::string(error_name(error)), row && row->common);
}

void Recorder::refuse(Thread& thread, const SyscallRow* row) {
  const auto number = static_cast<int64_t>(thread.entry.orig_rax);
  const auto reason = [&]() -> int {
    if (!row) return refusal_without_row(number);
    if (row->treat == Treat::refuse) return row->refusal;
    return is_described(*row, thread.args, thread.process->memory) ? ENODEV : EOPNOTSUPP;
  };
  const int error = reason();
  if (row && !mappable(thread)) {
    const std::string what = call_name(number, thread.args) + " of a device or socket";
    count_refusal(*thread.process->unit, what, std::string(error_name(error)), false);
  } else {
    count_refusal(thread, row, error);
  }
  answer_call(thread, -error);
}

// In the kernel's place, which does nothing about the call.
void Recorder::answer_call(Thread& thread, int64_t result) {
  const SyscallRow* const row = thread.row;
  const bool ours = row && row->special == Special::seccomp;
  if (ours) open_call(thread, thread.process->memory);
  Event& event = ours ? *thread.process->unit->log.open_of(thread.serial) : open_event(thread);
  event.result = result;
  user_regs_struct regs = thread.entry;
  regs.orig_rax = ~0ull;
  regs.rax = static_cast<uint64_t>(result);
  // A replay would execute it.
  if (row && row->treat == Treat::special && !ours && !is_error(result))
    event.registers = RegisterFile{as_bytes(regs), {}};
  thread.process->unit->log.close(row && row->test);
  set_regs(thread, regs);
  resume_user(thread, regs);
}

void Recorder::leave(Thread& thread) {
  user_regs_struct stopped;
  if (!tracer_.get_regs(thread.tid, stopped)) return;
  user_regs_struct regs = stopped;
  const Gate* const gate = thread.process->tier();
  if (gate) gate->make_canonical(regs);
  if (thread.timeout.take_shortened()) {
    const int arg = thread.row->timeout_arg;
    syscall_arg(regs, arg) = thread.args[static_cast<size_t>(arg)];
    set_regs(thread, regs);
  }
  if (thread.adapted) fill_adapted(thread, stopped, regs);
  if (std::exchange(thread.hides_untraced, false)) {
    if (thread.row->special == Special::clone) regs.rdi = thread.args[0];
    if (thread.row->special == Special::clone3) show_untraced(thread, thread.process->memory);
    set_regs(thread, regs);
  }
  auto result = static_cast<int64_t>(regs.rax);
  const int64_t kernels = result;
  if (asks_processors(*thread.row) && result >= 0) result = answer_processors(thread, result);
  if (thread.row->special == Special::sched_setaffinity) result = move_to_processors(thread, result);
  if (result != kernels) {
    regs.rax = static_cast<uint64_t>(result);
    set_regs(thread, regs);
  }
  // What rt_sigreturn leaves in rax is not its own result.
  if (thread.row->special == Special::none &&
      (result = result_of_woken(thread, result)) != static_cast<int64_t>(regs.rax)) {
    regs.rax = static_cast<uint64_t>(result);
    set_regs(thread, regs);
    // The kernel looks at the result only where it looks for signals, and others may have taken them.
    if (!thread.in_hand && regs.orig_rax != ~0ull) tracer_.interrupt(thread.tid);
  }
  if (Unit* other = unit_to_join(thread, result)) {
    join_unit(thread, Thread::Stop::exit, *other, name_of_mapping(thread, result));
    return;
  }
  if (thread.row->special == Special::sigreturn) {
    // It may return to an instruction that was replaced meanwhile.
    set_regs(thread, regs);
    read_mask(thread);
    UnitLog& log = thread.process->unit->log;
    Event& event = log.closing(thread.serial, thread.row->number);
    event.registers = RegisterFile{as_bytes(regs), tracer_.get_xstate(thread.tid)};
    log.close(false);
  } else {
    if (thread.process->gate) thread.process->gate->forget_changed(thread.row->special, thread.args, result);
    close_call(thread, result, thread.process->memory);
  }
  thread.xstate.clear();
  const bool came_from_gate = regs.orig_rax == ~0ull;
  if (came_from_gate && restarts(result)) {  // else the kernel sees to that
    regs = before_syscall(thread.entry);
    set_regs(thread, regs);
  } else if (gate && gate->physical(regs.rip) != stopped.rip) {
    set_regs(thread, regs);  // its site was patched meanwhile
  }
  if (const int signal = std::exchange(thread.in_hand, 0)) {
    runs_from(thread, regs);
    deliver(thread, signal, regs, static_cast<uint64_t>(SignalPoint::boundary));
    return;
  }
  raise_held(thread);
  resume_user(thread, regs);
}

// A call ends that was opened; `memory` is the thread's at its exit. `served`: its record, if it was. `times` and
// `cycle`: it stands for several calls, as an event does.
void Recorder::close_call(Thread& thread, int64_t result, const Memory& memory, const gate::Record* served,
                          uint64_t times, uint32_t cycle) {
  Unit& unit = *thread.process->unit;
  const SyscallRow& row = *thread.row;
  Event& event = unit.log.closing(thread.serial, static_cast<int32_t>(thread.entry.orig_rax));
  event.result = result;
  messages_.end_send(thread.sending, result);
  outputs(row, thread.output_args, thread.sizes, result, memory, spans_);
  if (result > 0 && (row.number == SYS_process_vm_readv || thread.process->opens_memory)) {
    show_own_code(thread, static_cast<uint64_t>(result));
  }
  for (const auto& span : spans_) {
    const auto kind = span.payload ? MemoryWrite::Kind::message : MemoryWrite::Kind::data;
    event.writes.push_back({span.address, span.length, kind, unit.log.spare()});
    MemoryWrite& write = event.writes.back();
    if (const uint8_t* bytes = memory.view(span.address, span.length)) {
      write.data.assign(bytes, bytes + span.length);
      continue;
    }
    // A span may be longer than what was written, and go beyond mapped memory.
    write.data.resize(span.length);
    write.data.resize(memory.read_some(span.address, write.data.data(), span.length));
    if (!write.data.empty() || !span.length) {
      write.length = write.data.size();
      continue;
    }
    event.writes.pop_back();
    add_unsure(unit, "the output of " + call_name(row.number, thread.args) + " could not be read");
  }
  restore_timeout(thread, event);
  receive(thread, result, memory, event);
  record_memory_call(thread, result, event, served);
  if (thread.changes_object) {
    note_change(thread, result, event);
    report_outside_changes();  // the call's own is none
    thread.changes_object = 0;
  }
  if (row.special == Special::write_process) note_write(thread, result, event);
  if (is_birth(row) && result > 0) note_birth(thread, memory, event);
  if (thread.asked && result == 0) has_asked(thread);
  if (!served && result >= 0 && row.new_descriptor == NewDescriptor::file) {
    // From now on its writes are looked at.
    thread.process->opens_memory |= memory_behind(*thread.process, static_cast<uint64_t>(result)) != 0;
  }
  if (result > 0 && thread.process->opens_memory) {
    note_written_memory(thread, static_cast<uint64_t>(result), event);
  }
  if (row.special == Special::set_tid_address) thread.clear_tid = thread.args[0];
  if (row.special == Special::modify_ldt && result == 0) {
    const auto written = descriptor_written(thread.args, memory);
    if (written) apply(*written, *thread.process->descriptors);
  }
  Messages::forget_closed(message_call(thread, memory), served);
  if (served) messages_.note_made(message_call(thread, memory), *served);
  if (!served && row.new_descriptor == NewDescriptor::connected && thread.process->gate) {
    const auto fd = static_cast<uint32_t>(thread.args[0]);
    thread.process->gate->forget_fresh(fd, fd);
  }
  thread.restarting = restarts(result) ? &row : nullptr;
  unit.end_state.clear();  // an execve that failed
  unit.log.close(row.test && !restarts(result), times, cycle);
}

}  // namespace redrive
