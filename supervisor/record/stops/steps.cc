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

bool Steps::step(Thread& thread, const InstructionAt& instruction, user_regs_struct& regs, bool& handled) {
  const auto get = [&](user_regs_struct& now) { return tracer_.get_regs(thread.tid, now); };
  const auto run = [&](Resume how) {
    thread.signals.keep_off(tracer_, thread.tid);
    control_.resume(thread, how);
    const auto stop = ends_.wait_stop(thread.tid);
    if (stop) thread.signals.let_come(tracer_, thread.tid);
    handled = stop != Stop(SignalStop{SIGTRAP});
    if (stop && handled) handler_.handle_amid(Stopped{thread.tid, *stop});
    return !handled;
  };
  if (instruction.kind != InstructionKind::repeated) return run(Resume::step) && get(regs);
  return run_past(
      thread.process->memory, regs.rip + instruction.size, regs, [&] { return run(Resume::cont); }, get,
      [&](const user_regs_struct& there) { return tracer_.set_regs(thread.tid, there); });
}

}  // namespace redrive
