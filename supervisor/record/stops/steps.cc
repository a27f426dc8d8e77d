#include "supervisor/record/stops/steps.h"

#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/stop_handler.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/stepping.h"

namespace redrive {

InstructionAt Steps::instruction_at(const Thread& thread, Address ip) {
  if (!reader_) reader_.emplace();
  return redrive::instruction_at(*reader_, thread.process->memory, ip);
}

// False if it was not a trap that has stopped it.
bool Steps::run(Thread& thread, Resume how, bool& handled) {
  thread.signals.keep_off(tracer_, thread.tid);
  control_.resume(thread, how);
  const auto stop = ends_.wait_stop(thread.tid);
  if (stop) thread.signals.let_come(tracer_, thread.tid);
  handled = stop != Stop(SignalStop{SIGTRAP});
  if (stop && handled) handler_.handle_amid(Stopped{thread.tid, *stop});
  return !handled;
}

bool Steps::step(Thread& thread, const InstructionAt& instruction, user_regs_struct& regs, bool& handled) {
  if (instruction.kind == InstructionKind::repeated) return run_to(thread, regs.rip + instruction.size, regs, handled);
  return run(thread, Resume::step, handled) && tracer_.get_regs(thread.tid, regs);
}

bool Steps::run_to(Thread& thread, Address ip, user_regs_struct& regs, bool& handled) {
  return run_past(
      thread.process->memory, ip, regs, [&] { return run(thread, Resume::cont, handled); },
      [&](user_regs_struct& now) { return tracer_.get_regs(thread.tid, now); },
      [&](const user_regs_struct& there) { return tracer_.set_regs(thread.tid, there); });
}

}  // namespace redrive
