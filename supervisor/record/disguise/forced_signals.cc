#include "supervisor/record/disguise/forced_signals.h"

#include <sys/syscall.h>

#include "checkpoint/address_space.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"

namespace redrive {
namespace {

const char* name_of(int signal) {
  if (signal == SIGSEGV) return "SIGSEGV";
  return signal == SIGILL ? "SIGILL" : "SIGTRAP";
}

}  // namespace

SignalAction* ForcedSignals::action_of(Process& process, int signal) {
  switch (signal) {
    case SIGSEGV:
      return &process.segv;
    case SIGILL:
      return &process.ill;
    case SIGTRAP:
      return &process.trap;
    default:
      return nullptr;
  }
}

void ForcedSignals::inherit(Thread& thread) {
  const SignalMasks masks = tracer_.signal_masks(thread.tid);
  thread.blocked = masks.blocked;
  for (const int signal : kForced) {
    *action_of(*thread.process, signal) = {masks.ignored & bit_of(signal) ? kIgnore : 0, 0, 0, 0};
  }
}

void ForcedSignals::note_asked(Thread& thread, const Memory& memory) {
  thread.call.asked.reset();
  const auto& args = thread.call.args;
  SignalAction asked{};
  if (thread.call.row->number == SYS_rt_sigprocmask) {
    if (args[1] && memory.get(args[1], asked.mask)) thread.call.asked = asked;
  } else if (thread.call.row->number == SYS_rt_sigaction) {
    const bool known = args[1] && action_of(*thread.process, static_cast<int>(args[0]));
    if (known && memory.get(args[1], asked)) thread.call.asked = asked;
  }
}

void ForcedSignals::has_asked(Thread& thread) {
  const SignalAction asked = *std::exchange(thread.call.asked, std::nullopt);
  if (thread.call.row->number == SYS_rt_sigaction) {
    *action_of(*thread.process, static_cast<int>(thread.call.args[0])) = asked;
    return;
  }
  switch (thread.call.args[0]) {
    case SIG_BLOCK:
      thread.blocked |= asked.mask;
      break;
    case SIG_UNBLOCK:
      thread.blocked &= ~asked.mask;
      break;
    default:
      thread.blocked = asked.mask;
  }
}

void ForcedSignals::read_mask(Thread& thread) { tracer_.get_signal_mask(thread.tid, thread.blocked); }

void ForcedSignals::handler_starts(Thread& thread, int signal) {
  read_mask(thread);
  SignalAction* const action = action_of(*thread.process, signal);
  if (action && (action->flags & SA_RESETHAND)) action->handler = 0;
}

bool ForcedSignals::undo_forced(Thread& thread, int signal, const user_regs_struct& regs) {
  const uint64_t bit = bit_of(signal);
  const SignalAction action = *action_of(*thread.process, signal);
  const bool blocked = thread.blocked & bit;
  if (blocked) {
    uint64_t mask = 0;
    tracer_.get_signal_mask(thread.tid, mask);
    mask |= bit;
    tracer_.set_signal_mask(thread.tid, mask);
  }
  return action.handler == 0 || (!blocked && action.handler != kIgnore) || put_back(thread, signal, regs);
}

bool ForcedSignals::undo_trap(Thread& thread, const user_regs_struct& regs) {
  return thread.process->trap.handler != kIgnore || put_back(thread, SIGTRAP, regs);
}

bool ForcedSignals::put_back(Thread& thread, int signal, const user_regs_struct& regs) {
  const Memory& memory = thread.process->memory;
  const Address instruction = vdso_syscall(memory, vdso_address(thread.process->shown_as()));
  const SignalAction& action = *action_of(*thread.process, signal);
  if (instruction && calls_.set_action(caller_of(thread), memory, instruction, regs, signal, action)) return true;
  user_regs_struct now;
  if (!tracer_.get_regs(thread.tid, now)) return false;
  findings_.add_unsure(*thread.process->unit, std::string("the handler of ") + name_of(signal) +
                                                  " was lost to an instruction that the recorder answers");
  return true;
}

}  // namespace redrive
