#include "supervisor/record/disguise/forced_signals.h"

#include <sys/syscall.h>

#include "checkpoint/address_space.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"

namespace redrive {
namespace {

constexpr uint64_t kIgnore = 1;  // SIG_IGN

constexpr uint64_t kRedZone = 128;  // below the stack pointer

constexpr uint64_t kSetSize = sizeof(uint64_t);

// Null if the signal is not one that is forced for an instruction that is answered.
SignalAction* action_of(Process& process, int signal) {
  if (signal == SIGSEGV) return &process.segv;
  return signal == SIGILL ? &process.ill : nullptr;
}

}  // namespace

void ForcedSignals::inherit(Thread& thread) {
  const SignalMasks masks = tracer_.signal_masks(thread.tid);
  thread.blocked = masks.blocked;
  for (const int signal : {SIGSEGV, SIGILL}) {
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
  if (action.handler == 0 || (!blocked && action.handler != kIgnore)) return true;
  const Memory& memory = thread.process->memory;
  const Address instruction = vdso_syscall(memory, vdso_address(thread.process->shown_as()));
  const Address at = (regs.rsp - kRedZone - sizeof action) & ~Address{15};
  SignalAction covered{};
  if (!instruction || !memory.get(at, covered) || !memory.put(at, action)) {
    findings_.add_unsure(*thread.process->unit, "the handler of " +
                                                    std::string(signal == SIGILL ? "SIGILL" : "SIGSEGV") +
                                                    " was lost to an instruction that the recorder answers");
    return true;
  }
  const auto done = calls_.call_at(caller_of(thread), instruction, regs, SYS_rt_sigaction,
                                   {static_cast<uint64_t>(signal), at, 0, kSetSize});
  if (!done) return false;
  memory.put(at, covered);
  return true;
}

}  // namespace redrive
