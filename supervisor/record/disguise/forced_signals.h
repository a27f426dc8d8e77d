// Restores what an instruction's fault takes away from a program that never sees the fault. rdtsc, rdtscp and cpuid
// arrive as SIGSEGV or SIGILL, are answered, and the program gets no signal. But where it blocks or ignores that
// signal, the kernel forces it: the handler becomes SIG_DFL and the signal is unblocked (force_sig(), kernel/signal.c).
// Both are put back here, from what the program has asked for: the kernel does not say how it was before.
#pragma once

#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Findings;

class ForcedSignals {
 public:
  ForcedSignals(Tracer& tracer, TraceeCalls& calls, Findings& findings)
      : tracer_(tracer), calls_(calls), findings_(findings) {}

  // A program begins: it has inherited the mask, and which signals are ignored (execve(2)).
  void inherit(Thread& thread);
  // At the entry of a call: what it will have asked for if it succeeds; `memory` is the thread's.
  static void note_asked(Thread& thread, const Memory& memory);
  // That call has succeeded.
  static void has_asked(Thread& thread);
  // The kernel has set the mask: at the start of a handler, or on return from it.
  void read_mask(Thread& thread);
  // The thread is stopped by the fault of an instruction that is answered, with these registers. False if it was
  // killed.
  bool undo_forced(Thread& thread, int signal, const user_regs_struct& regs);

 private:
  Tracer& tracer_;
  TraceeCalls& calls_;
  Findings& findings_;
};

}  // namespace redrive
