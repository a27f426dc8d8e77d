// Restores what an instruction's fault takes away from a program that never sees the fault. rdtsc, rdtscp and cpuid
// arrive as SIGSEGV or SIGILL, are answered, and the program gets no signal; single steps and breakpoints of the
// recorder's arrive as SIGTRAP. But where the program blocks or ignores that signal, the kernel forces it: the handler
// becomes SIG_DFL and the signal is unblocked (force_sig(), kernel/signal.c). Both are put back here, from what the
// program has asked for: the kernel does not say how it was before.
#pragma once

#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Findings;

class ForcedSignals {
 public:
  static constexpr int kForced[] = {SIGSEGV, SIGILL, SIGTRAP};
  // What the process does about one of these; null for any other signal.
  static SignalAction* action_of(Process& process, int signal);

  ForcedSignals(Tracer& tracer, TraceeCalls& calls, Findings& findings)
      : tracer_(tracer), calls_(calls), findings_(findings) {}

  // A program begins: it has inherited the mask, and which signals are ignored (execve(2)).
  void inherit(Thread& thread);
  // At the entry of a call: what it will have asked for if it succeeds; `memory` is the thread's.
  static void note_asked(Thread& thread, const Memory& memory);
  // That call has succeeded.
  static void has_asked(Thread& thread);
  // The kernel has set the mask, on return from a handler.
  void read_mask(Thread& thread);
  // A handler starts: the kernel has set the mask, and may have reset the handler.
  void handler_starts(Thread& thread, int signal);
  // The thread is stopped by the fault of an instruction that is answered, with these registers. False if it was
  // killed.
  bool undo_forced(Thread& thread, int signal, const user_regs_struct& regs);
  // The same for a trap of the recorder's that the thread did not block (HeldSignals::keep_off_up_to_trap).
  bool undo_trap(Thread& thread, const user_regs_struct& regs);

 private:
  bool put_back(Thread& thread, int signal, const user_regs_struct& regs);

  Tracer& tracer_;
  TraceeCalls& calls_;
  Findings& findings_;
};

}  // namespace redrive
