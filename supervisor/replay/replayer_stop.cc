// A re-driven unit that stops on its way (stopped_unit.h), to be looked at and to go on.
#include <fmt/format.h>

#include "interceptors/patch_window.h"
#include "supervisor/replay/replayer.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// The kernel is to make no call when the thread goes on.
bool set_regs_alone(pid_t tid, user_regs_struct regs) {
  regs.orig_rax = ~0ull;
  return set_regs(tid, regs);
}

}  // namespace

// The thread that makes the next event goes on to the instruction that makes it, and is found there when the event is
// executed.
Result<Step> Replayer::arrive(EventIndex index, const Event& event) {
  Thread* const found = thread_of(event);
  if (!found) return no_thread(index, event);
  Thread& thread = *found;
  const auto point = static_cast<SignalPoint>(event.args[0]);
  const bool signal = event.kind == EventKind::signal;
  if (event.kind == EventKind::exit) return Step::as_recorded();
  if (event.kind == EventKind::preemption) {
    const bool goes_on = static_cast<Preempted>(event.args[0]) == Preempted::checkpoint;
    return goes_on ? Step::as_recorded() : replay_preemption(thread, index, event);
  }
  if (signal && point != SignalPoint::before_syscall && point != SignalPoint::fault) return Step::as_recorded();
  ASSIGN_OR_RETURN(const StopKind stop, run_to_stop(thread));
  thread.ahead = stop;
  const bool faults = event.kind == EventKind::trap || (signal && point == SignalPoint::fault);
  const Address ip = signal && !faults ? event.ip + kSyscallSize : event.ip;  // behind the instruction
  if (stop == (faults ? StopKind::fault : StopKind::syscall) && thread.regs.rip == ip) return Step::as_recorded();
  return diverged(thread, index, fmt::format("to stop at {:#x}", ip), came_to(thread, stop));
}

// Stands before an event until it is told what to do then.
Result<Replayer::Stood> Replayer::stand(EventIndex index) {
  StoppedUnit stopped{what_.unit, index, std::nullopt, {}, {}};
  if (!options_.halt->shown()) return Stood(options_.halt->stand(stopped));
  Result<Step> arrived = Step::as_recorded();
  TRY(trace_.for_each_event(what_.unit, index, index + 1, [&](EventIndex, const Event& event) {
    stopped.thread = event.thread;
    arrived = arrive(index, event);
    return true;
  }));
  if (!arrived) return arrived.error();
  if (arrived->has_diverged()) return Stood(arrived->difference());
  std::vector<std::vector<ProcessSerial>> without_gate;
  while (!gates_.empty()) without_gate.push_back(remove_gate(gates_.begin()->first));
  for (const auto& [serial, thread] : threads_) {
    const bool before_call = thread.ahead == StopKind::syscall;
    const user_regs_struct regs = before_call ? before_syscall(thread.regs) : thread.regs;
    if (!set_regs_alone(thread.tid, regs)) return errno_error("cannot set registers");
    stopped.threads[serial] = {thread.process, thread.tid, regs, thread.stopped_at_syscall && !before_call};
  }
  for (const auto& [serial, process] : unit_.processes) stopped.memories[serial] = &process.stub.memory();
  const Halt::Then then = options_.halt->stand(stopped);
  if (then == Halt::Then::end) return Stood(then);
  for (const auto& [serial, thread] : threads_) {
    if (!set_regs_alone(thread.tid, thread.regs)) return errno_error("cannot set registers");
  }
  for (const auto& sharing : without_gate) TRY(map_gate(sharing, unit_.processes.at(sharing.front()).stub.pid()));
  return Stood(then);
}

}  // namespace redrive
