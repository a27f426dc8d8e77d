#include "supervisor/record/stops/ends.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include "supervisor/record/checkpoints/intervals.h"
#include "supervisor/record/front/front.h"
#include "supervisor/record/kernel/stop_queue.h"
#include "supervisor/record/memory/outside_changes.h"
#include "supervisor/record/memory/private_views.h"
#include "supervisor/record/settings/triggers.h"
#include "supervisor/record/stops/call_events.h"
#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/stops/foreign_memory.h"
#include "supervisor/record/stops/gate_stops.h"
#include "supervisor/record/stops/joiner.h"
#include "supervisor/record/stops/late_writes.h"
#include "supervisor/record/stops/preempter.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/record/stops/tracer_answers.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/tier/births.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// The thread of the process that executes a program; null if none does.
Thread* executing_in(const Process& process) {
  const auto& threads = process.unit->threads;
  const auto found = std::find_if(threads.begin(), threads.end(), [&](const auto& entry) {
    const Thread& thread = *entry.second;
    const SyscallRow* const row = thread.call.row;
    const bool inside = thread.is<Thread::Syscall>() || thread.is<Thread::Blocked>();
    return thread.process == &process && inside && row && executes_program(*row, thread.call.args);
  });
  return found == threads.end() ? nullptr : found->second;
}

// Whether the program's own instruction there is a system call, whatever replaces it.
bool is_syscall_at(const Process& process, Address address) {
  constexpr std::array<uint8_t, kSyscallSize> kSyscall{0x0f, 0x05};
  std::array<uint8_t, kSyscallSize> there{};
  if (!process.memory.get(address, there)) return false;
  if (const Gate* const gate = process.tier()) gate->undo_patches(address, there);
  return there == kSyscall;
}

}  // namespace

LeftBehind Ends::left_behind() const {
  std::set<const Process*> processes;
  for (const auto& [tid, thread] : tracees_.threads()) processes.insert(thread->process);
  return {root_end_.shell_status(), processes.size()};
}

void Ends::end_thread(Thread& thread, bool whole_process) {
  Process& process = *thread.process;
  Unit& unit = *process.unit;
  const bool leader = thread.tid == process.pid;
  const bool last = whole_process || process.threads - (process.leader_exited ? 1 : 0) == 1;
  process.end_logged |= last;
  process.leader_exited |= leader;
  unit.clock.cpu_ns();  // asked for the last time while the process lives
  if (last) {
    intervals_.note_end_state(thread, before_syscall(thread.entry));
    private_views_.check_all(process);
    outside_.look_before_end(process);
  }
  Event& event = unit.log.closing(thread.serial, static_cast<int32_t>(thread.entry.orig_rax));
  event.fatal = true;
  last ? note_late_writes(process, event.writes) : note_thread_end(thread, event.writes);
  unit.log.close(false);
  thread.exited = true;
  if (thread.tid == process.shown_as() && !last) show_by_another(process);
  if (!whole_process) signals_.pass_on_held(thread);
  thread.state = Thread::Syscall{};
  control_.resume(thread, Resume::cont);
  // A leader's end is reported only after its last thread's; the others continue meanwhile.
  if (leader && !last) turns_.give_up(unit);
}

// The calls of other threads must not write any more when it is looked what they have written.
void Ends::note_late_writes(const Process& process, std::vector<MemoryWrite>& writes) {
  const Unit& unit = *process.unit;
  for (const auto& [serial, thread] : unit.threads) {
    const bool may_write = thread->process == &process && unit.processes.size() > 1 && call_may_write(*thread);
    // Otherwise the end of a leader would be waited for, which comes only after those of its other threads.
    if (!may_write || !thread->reports_exit || thread->is_ready(Thread::Stop::exit)) continue;
    const bool bears = is_birth(*thread->call.row);  // which cannot be interrupted (vfork(2))
    if (bears || stops_.holds(thread->tid) || !tracer_.interrupt(thread->tid)) continue;
    stops_.await(thread->tid);
  }
  note_process_end(process, writes);
}

// What calls that will not return have changed in files that others have mapped.
void Ends::note_unfinished_changes(const Process& process, Event& event) {
  for (const auto& [serial, thread] : process.unit->threads) {
    if (thread->process == &process && !thread->exited) events_.note_object_change(*thread, {}, event);
  }
}

// /proc no longer shows the memory and the files of a thread that has exited.
void Ends::show_by_another(Process& process) {
  const auto& threads = process.unit->threads;
  const auto other = std::find_if(threads.begin(), threads.end(), [&](const auto& entry) {
    return entry.second->process == &process && !entry.second->exited;
  });
  if (other == threads.end()) return;
  if (auto memory = tracer_.open_memory(other->second->tid)) process.memory = std::move(*memory);
  if (Fd pidfd = pidfd_of_thread(other->second->tid)) process.pidfd = std::move(pidfd);
}

void Ends::ask_for_exit(Thread& thread) {
  if (thread.process->unit->processes.size() == 1 || std::exchange(thread.reports_exit, true)) return;
  tracer_.set_option(thread.tid, TraceeOption::reports_exit);
}

void Ends::exits(Thread& thread, TraceeEnd end) {
  const Unit& unit = *thread.process->unit;
  const bool ran = unit.baton.holder() == &thread && thread.is<Thread::User>();
  const bool others = unit.in_interval && unit.processes.size() > 1;
  std::optional<Address> call;
  if (end.killed() && !thread.process->end_logged && !thread.left_out && ran && others) call = bring_to_place(thread);
  note_end_of_process(thread, end, call);
  // What its call wrote after that of the thread that executes a program was made.
  if (Thread* const executing = executing_in(*thread.process); executing && unit.processes.size() > 1) {
    note_pending_outputs(thread, thread.process->memory, executing->call.written_by_exec);
  }
  control_.resume(thread, Resume::cont);
}

// The thread was killed in user code, and others share its memory: they find there what it has written since
// its last event. So a replay must know how far it came: to the entry of a call, which is returned, or else to where an
// interval begins.
std::optional<Address> Ends::bring_to_place(Thread& thread) {
  Process& process = *thread.process;
  Unit& unit = *process.unit;
  user_regs_struct regs;
  if (unit.log.open_of(thread.serial) || !tracer_.get_regs(thread.tid, regs)) return {};
  if (in_gate(thread, regs.rip)) return gate_stops_.call_at_end(thread, regs);
  const Gate* const gate = process.tier();
  const bool moved = gate && gate->canonical(regs.rip) == regs.rip && gate->touches(regs.rip, regs.rip + 1);
  if (gate) gate->make_canonical(regs);
  if (static_cast<int64_t>(regs.orig_rax) >= 0) {
    const bool made = static_cast<int64_t>(regs.rax) != -ENOSYS;  // which is what a call finds there at its entry
    return made ? std::nullopt : std::optional<Address>(regs.rip - kSyscallSize);
  }
  if (!moved && is_syscall_at(process, regs.rip)) return regs.rip;
  if (moved || process.threads > 1) {
    findings_.add_unsure(
        unit, fmt::format("process {} was killed while it ran, and others find what it has written", process.pid));
    return {};
  }
  intervals_.end(unit);
  if (!checkpointer_.begin_joined_interval(unit, thread)) return {};
  add_preemption(thread, regs, Preempted::turn);
  return {};
}

// A thread ends, or has ended. The end of a process that is killed is an event; every other end is known from its call.
// `call`: which it was about to make; nothing if that is not known.
void Ends::note_end_of_process(Thread& thread, TraceeEnd end, std::optional<Address> call) {
  Process& process = *thread.process;
  Unit& unit = *process.unit;
  thread.reports_exit = false;  // it has, if it was to
  if (process.end_logged || !unit.in_interval || thread.left_out) return;
  const bool last = process.threads == 1;
  // When one thread executes a program, the other threads of its process are killed as well.
  const bool executes = executing_in(process);
  // A thread that runs makes calls, which may be served, until it has been killed as well.
  const Thread* const holder = unit.baton.holder();
  const bool one_runs = holder && holder != &thread && holder->process == &process && holder->is<Thread::User>();
  if (!last && (!end.killed() || executes || thread.exited || one_runs)) return;
  process.end_logged = true;
  Event event;
  event.kind = EventKind::signal;
  event.thread = thread.serial;
  event.number = end.signal;
  event.ip = call.value_or(0);
  event.args[0] = static_cast<uint64_t>(call ? SignalPoint::before_syscall : SignalPoint::anywhere);
  event.fatal = true;
  note_late_writes(process, event.writes);
  if (unit.processes.size() > 1) note_unfinished_changes(process, event);
  unit.log.add(std::move(event));
  unit.end_state.clear();
}

void Ends::ended(pid_t tid, TraceeEnd end) {
  Thread* found = tracees_.find(tid);
  if (!found) return;
  Process& process = *found->process;
  Unit& unit = *process.unit;
  if (tid == root_) {
    root_end_ = end;
    root_ended_ = tracer_.now();
    continue_front();
  }
  note_end_of_process(*found, end);
  tracees_.remove_thread(*found);
  if (process.threads == 0) {
    triggers_.note_end(unit.id, process.command.substr(0, process.command.find(' ')), end);
    for (const auto& [serial, thread] : unit.threads) {
      if (thread->tracer == process.pid) let_go(*thread);
    }
    if (process.gate && process.gate->program && !process.borrows_memory) process.gate->program->ended = true;
    unit.clock.remove(process.pid);
    if (process.stays) writer_.add(*process.stays);
    std::erase_if(unit.processes, [&](const auto& p) { return p.get() == &process; });
    if (unit.processes.empty()) {
      unit.log.flush();
      intervals_.end(unit);
      foreign_.let_write(unit);
      joiner_.leave_join(unit);
    }
  }
  turns_.schedule(unit);
  if (unit.processes.empty()) ended_units_.push_back(unit.id);
}

void Ends::forget_ended() {
  for (const UnitId id : std::exchange(ended_units_, {})) {
    const Unit* const unit = tracees_.find_unit(id);
    if (!unit) continue;
    events_.end_messages(*unit);
    findings_.add_calls(*unit);
    checkpointer_.note_end(*unit);
    tracees_.remove_unit(id);
    writer_.end_unit(id);
  }
}

std::optional<Stop> Ends::wait_stop(pid_t tid) {
  const auto stop = tracer_.wait(tid);
  if (!stop || (!is<Gone>(*stop) && !is<Exiting>(*stop))) return stop;
  stops_.add({tid, *stop});
  return {};
}

}  // namespace redrive
