#include "supervisor/record/stops/stop_handler.h"

#include "base/notice.h"
#include "base/overloaded.h"
#include "base/text.h"
#include "supervisor/record/front/front.h"
#include "supervisor/record/memory/outside_changes.h"
#include "supervisor/record/stops/births.h"
#include "supervisor/record/stops/checkpoint_copies.h"
#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/stops/code_patching.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/full_rings.h"
#include "supervisor/record/stops/gate_stops.h"
#include "supervisor/record/stops/loop_handover.h"
#include "supervisor/record/stops/preempter.h"
#include "supervisor/record/stops/programs.h"
#include "supervisor/record/stops/served_calls.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/record/stops/stopped_calls.h"
#include "supervisor/record/stops/trap_answers.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/stops/woken_calls.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/tier/births.h"
#include "supervisor/tier/registers.h"

namespace redrive {

void StopHandler::handle(const Stopped& stopped) {
  Thread* const found = tracees_.find(stopped.tid);
  if (found && is<SyscallEntry>(stopped.stop) && full_rings_.serve_again(*found)) return;
  const TakenBack taken_back(served_);
  handle_amid(stopped);
}

void StopHandler::handle_amid(const Stopped& stopped) {
  const auto& [tid, stop] = stopped;
  Thread* const found = tracees_.find(tid);
  served_.check_taken_back();
  served_.drain();
  outside_.report_changes();  // before the processes that map it are gone
  checkpointer_.ask_at_each_event();
  ends_.forget_ended();
  if (const auto* gone = std::get_if<Gone>(&stop)) {
    ends_.ended(tid, gone->end);
    return;
  }
  if (found) {
    found->signals.let_come(tracer_, found->tid);
    served_.empty_ring(*found);
  }
  if (const auto* exec = std::get_if<Exec>(&stop)) {
    programs_.executed(tid, exec->former_tid);
    return;
  }
  if (found) {
    handle(*found, stop);
  } else if (is<Exiting>(stop)) {
    tracer_.resume(tid, Resume::cont);
  } else if (copies_.take_stop(stopped)) {
    return;
  } else if (copies_.is_lost(tid)) {
    copies_.end(tid);
  } else {
    // Its parent was killed while it bore it, and nobody knows of it: as if the parent had been killed right before.
    tracer_.send(tid, SIGKILL);
  }
}

void StopHandler::handle(Thread& thread, const Stop& stop) {
  served_.check_taken_back();
  // It is about to be killed, or has been, and its registers may still be there: nothing more happens in it.
  if (thread.process->end_logged && !is<Exiting>(stop)) return;
  ends_.ask_for_exit(thread);
  std::visit(Overloaded{
                 [&](const SyscallEntry&) REQUIRES(recorded) { syscall_entry(thread); },
                 [&](const SyscallExit&) { syscall_exit(thread); },
                 [&](const Birth& birth) REQUIRES(recorded) {
                   if (birth.child > 0) births_.born(thread, birth.child);  // otherwise it was killed
                 },
                 [&](const SignalStop& stopped) REQUIRES(recorded) { signals_.handle(thread, stopped.signal); },
                 [&](const GroupStop& stopped) REQUIRES(recorded) { group_stop(thread, stopped.signal); },
                 [&](const Interrupted&) REQUIRES(recorded) { interrupted(thread); },
                 [&](const Exiting& exiting) REQUIRES(recorded) { ends_.exits(thread, exiting.end); },
                 [](const Exec&) { ASSERT(!"an exec is handled before"); },
                 [](const Gone&) { ASSERT(!"an end is handled before"); },
             },
             stop);
}

void StopHandler::group_stop(Thread& thread, int signal) {
  if (thread.is<Thread::Starting>()) {
    turns_.take_or_queue(thread, {Thread::Stop::start});
    return;
  }
  if (control_.parks()) return control_.park(thread);
  if (thread.process->pid == ends_.root()) stop_front(signal);
  if (thread.call.transfers_rest()) return tracer_.listen(thread.tid);
  signals_.stop_with_group(thread);
}

// A thread has been born, its group continues, or the recorder has interrupted it.
void StopHandler::interrupted(Thread& thread) {
  if (thread.process->pid == ends_.root()) continue_front();
  if (thread.is<Thread::Starting>()) {
    turns_.take_or_queue(thread, {Thread::Stop::start});
  } else if (const auto* const stopped = std::get_if<Thread::GroupStopped>(&thread.state)) {
    turns_.take_or_queue(thread, {Thread::Stop::continued, stopped->rewound});
  } else if (thread.sleeps_in_served_call()) {
    gate_stops_.disturb(thread, thread.asked_to_stop);
  } else {
    bool handled = false;
    const bool in_user = thread.is<Thread::User>();
    const bool due = std::exchange(thread.preempting, false) && in_user;
    if (due && (preempter_.preempt(thread, handled) || handled)) return;
    const unsigned looked_at = std::exchange(thread.looked_at, 0);
    if (looked_at && in_user && loops_.look(thread, looked_at)) return;
    if (in_user && (gate_stops_.goes_on(thread) || gate_stops_.end_cut_short(thread, 0))) return;
    if (in_user) gate_stops_.leave_gate(thread);
    in_user ? control_.run_on(thread) : control_.resume(thread, Resume::to_syscall_exit);
  }
}

void StopHandler::syscall_entry(Thread& thread) {
  if (thread.is<Thread::Starting>()) {
    control_.resume(thread, Resume::cont);  // the launcher, before its program begins
    return;
  }
  if (thread.call.transfers_rest()) {
    woken_.enter_rest(thread);
    return;
  }
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return;
  const Gate* const gate = thread.process->gate.get();
  if (gate && regs.rip == arena_->header().boundary) {
    thread.sleeps_in_served_call() ? gate_stops_.woke(thread, regs) : gate_stops_.at_boundary(thread, regs);
    return;
  }
  if (arena_ && (regs.rip == arena_->header().executed || regs.rip == arena_->header().injected)) {
    end_intruder(thread);
    return;
  }
  if (gate) {
    gate->make_canonical(regs);
    gate_stops_.cancel_pending(thread);
  }
  regs.orig_rax = call_number(regs);
  thread.entry = regs;
  if (control_.parks()) {
    control_.rewind(thread, regs);
    return;
  }
  if (in_vsyscall_page(regs.rip)) {
    traps_.answer_vsyscall(thread);
  } else if (!patching_.patch(thread)) {
    stopped_calls_.enter(thread);
  }
}

// The thread has jumped to an instruction of the tier, to make a call there that the tier does not make. The call is
// not made.
void StopHandler::end_intruder(const Thread& thread) {
  const Process& process = *thread.process;
  notice("process {} ({}) tried to make system calls with redrive's own code, and was killed", process.pid,
         printable(process.command));
  tracer_.send(process.pid, SIGKILL);
}

void StopHandler::syscall_exit(Thread& thread) {
  served_.check_taken_back();
  if (thread.is<Thread::User>()) {
    control_.run_on(thread);  // the call was skipped, or the program has just begun
  } else if (thread.call.transfers_rest()) {
    if (woken_.leaves_rest(thread)) turns_.take_or_queue(thread, {Thread::Stop::exit});
  } else if (thread.is<Thread::Syscall>()) {
    stopped_calls_.leave(thread);
  } else {
    turns_.take_or_queue(thread, {Thread::Stop::exit});
  }
}

}  // namespace redrive
