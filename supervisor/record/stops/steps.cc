#include "supervisor/record/stops/steps.h"

#include "supervisor/record/disguise/forced_signals.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/stop_handler.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/stepping.h"

namespace redrive {

InstructionAt Steps::instruction_at(const Thread& thread, Address ip) {
  if (!reader_) reader_.emplace();
  return redrive::instruction_at(*reader_, thread.process->memory, ip);
}

bool Steps::run_to_trap(Thread& thread, Resume how, std::optional<Stop>& other) {
  thread.signals.keep_off_up_to_trap(tracer_, thread.tid);
  control_.resume(thread, how);
  other = ends_.wait_stop(thread.tid);
  if (!other) return false;
  thread.signals.let_come(tracer_, thread.tid);
  siginfo_t info{};
  const bool trapped = *other == Stop{SignalStop{SIGTRAP}} && tracer_.get_siginfo(thread.tid, info) &&
                       thread.process->false_faults.caused_by_instruction(info);
  if (!trapped) return false;
  other.reset();
  user_regs_struct regs;
  return tracer_.get_regs(thread.tid, regs) && forced_.undo_trap(thread, regs);
}

void Steps::handle(Thread& thread, const std::optional<Stop>& stop) {
  if (stop) handler_.handle_amid(Stopped{thread.tid, *stop});
}

bool Steps::step(Thread& thread, const InstructionAt& instruction, user_regs_struct& regs, bool& handled) {
  if (instruction.kind == InstructionKind::repeated) return run_to(thread, regs.rip + instruction.size, regs, handled);
  std::optional<Stop> other;
  handled = !run_to_trap(thread, Resume::step, other);
  if (handled) handle(thread, other);
  return !handled && tracer_.get_regs(thread.tid, regs);
}

bool Steps::run_to(Thread& thread, Address ip, user_regs_struct& regs, bool& handled) {
  std::optional<Stop> other;
  handled = false;
  const auto runs = [&] {
    handled = !run_to_trap(thread, Resume::cont, other);
    return !handled;
  };
  const bool came = run_past(
      thread.process->memory, ip, regs, runs, [&](user_regs_struct& now) { return tracer_.get_regs(thread.tid, now); },
      [&](const user_regs_struct& there) { return tracer_.set_regs(thread.tid, there); });
  if (handled) handle(thread, other);  // it may run on: the breakpoint is no longer there
  return came;
}

}  // namespace redrive
