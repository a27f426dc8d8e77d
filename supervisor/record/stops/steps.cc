#include "supervisor/record/stops/steps.h"

#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/stop_handler.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/stepping.h"

namespace redrive {
namespace {

const Stop kTrapped = SignalStop{SIGTRAP};

}  // namespace

InstructionAt Steps::instruction_at(const Thread& thread, Address ip) {
  if (!reader_) reader_.emplace();
  return redrive::instruction_at(*reader_, thread.process->memory, ip);
}

std::optional<Stop> Steps::run(Thread& thread, Resume how) {
  thread.signals.keep_off(tracer_, thread.tid);
  control_.resume(thread, how);
  const auto stop = ends_.wait_stop(thread.tid);
  if (stop) thread.signals.let_come(tracer_, thread.tid);
  return stop;
}

bool Steps::handle_other(Thread& thread, const std::optional<Stop>& stop) {
  if (stop == kTrapped) return false;
  if (stop) handler_.handle_amid(Stopped{thread.tid, *stop});
  return true;
}

bool Steps::step(Thread& thread, const InstructionAt& instruction, user_regs_struct& regs, bool& handled) {
  if (instruction.kind == InstructionKind::repeated) return run_to(thread, regs.rip + instruction.size, regs, handled);
  handled = handle_other(thread, run(thread, Resume::step));
  return !handled && tracer_.get_regs(thread.tid, regs);
}

bool Steps::run_to(Thread& thread, Address ip, user_regs_struct& regs, bool& handled) {
  std::optional<Stop> stop = kTrapped;
  const auto runs = [&] {
    stop = run(thread, Resume::cont);
    return stop == kTrapped;
  };
  const bool came = run_past(
      thread.process->memory, ip, regs, runs, [&](user_regs_struct& now) { return tracer_.get_regs(thread.tid, now); },
      [&](const user_regs_struct& there) { return tracer_.set_regs(thread.tid, there); });
  handled = handle_other(thread, stop);  // it may run on: the breakpoint is no longer there
  return came;
}

}  // namespace redrive
