// What an instruction's fault takes away from a program that never sees it. rdtsc, rdtscp and cpuid arrive as SIGSEGV
// or SIGILL, are answered, and are no signals for the program. But where it blocks or ignores that signal, the kernel
// forces it: the handler becomes SIG_DFL and the signal is unblocked (force_sig(), kernel/signal.c). Both are put back
// here, from what the program has asked for: the kernel says nothing of how it was before.
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/address_space.h"
#include "supervisor/record/recorder.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr uint64_t kIgnore = 1;     // SIG_IGN
constexpr uint64_t kRedZone = 128;  // below the stack pointer
constexpr uint64_t kSetSize = sizeof(uint64_t);

// Null if the signal is none that is forced for an instruction that is answered.
SignalAction* action_of(Process& process, int signal) {
  if (signal == SIGSEGV) return &process.segv;
  return signal == SIGILL ? &process.ill : nullptr;
}

}  // namespace

// A program begins: it has inherited the mask, and which signals are ignored (execve(2)).
void Recorder::inherit_signals(Thread& thread) {
  const SignalMasks masks = tracer_.signal_masks(thread.tid);
  thread.blocked = masks.blocked;
  for (const int signal : {SIGSEGV, SIGILL}) {
    *action_of(*thread.process, signal) = {masks.ignored & bit_of(signal) ? kIgnore : 0, 0, 0, 0};
  }
}

// At the entry of a call: what it will have asked for if it succeeds; `memory` is the thread's.
void Recorder::note_asked(Thread& thread, const Memory& memory) {
  thread.asked.reset();
  const auto& args = thread.args;
  SignalAction asked{};
  if (thread.row->number == SYS_rt_sigprocmask) {
    if (args[1] && memory.get(args[1], asked.mask)) thread.asked = asked;
  } else if (thread.row->number == SYS_rt_sigaction) {
    const bool known = args[1] && action_of(*thread.process, static_cast<int>(args[0]));
    if (known && memory.get(args[1], asked)) thread.asked = asked;
  }
}

// It has succeeded.
void Recorder::has_asked(Thread& thread) {
  const SignalAction asked = *std::exchange(thread.asked, std::nullopt);
  if (thread.row->number == SYS_rt_sigaction) {
    *action_of(*thread.process, static_cast<int>(thread.args[0])) = asked;
    return;
  }
  switch (thread.args[0]) {
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

// The kernel has set it: at the start of a handler, or behind it.
void Recorder::read_mask(Thread& thread) { tracer_.get_signal_mask(thread.tid, thread.blocked); }

// The thread is stopped by the fault of an instruction that is answered, with these registers. False if it was killed.
bool Recorder::undo_forced(Thread& thread, int signal, const user_regs_struct& regs) {
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
  const Address instruction = vdso_syscall(memory, vdso_address(thread.process->pid));
  const Address at = (regs.rsp - kRedZone - sizeof action) & ~Address{15};
  SignalAction covered{};
  if (!instruction || !memory.get(at, covered) || !memory.put(at, action)) {
    add_unsure(*thread.process->unit, "the handler of " + std::string(signal == SIGILL ? "SIGILL" : "SIGSEGV") +
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
