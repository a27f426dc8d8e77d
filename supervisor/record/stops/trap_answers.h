// Answers what traps and is not a system call to the program: rdtsc, rdtscp, cpuid, and calls of the vsyscall page.
// A thread that executes such an instruction in a loop may make no call, so it gives up the baton, and gets its
// signals, after one that has stopped.
#pragma once

#include "interceptors/trapped_instructions.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class ThreadControl;
class CallEvents;
class CodePatching;
class ForcedSignals;
class StoppedCalls;
class SignalDelivery;
class Turns;

class TrapAnswers {
 public:
  TrapAnswers(Tracer& tracer, GateArena* arena, CpuidAnswers& answers, ThreadControl& control, CallEvents& events,
              CodePatching& patching, SignalDelivery& signals, ForcedSignals& forced, Turns& turns,
              StoppedCalls& stopped_calls)
      : tracer_(tracer),
        arena_(arena),
        answers_(answers),
        control_(control),
        events_(events),
        patching_(patching),
        signals_(signals),
        forced_(forced),
        turns_(turns),
        stopped_calls_(stopped_calls) {}

  // A thread has stopped for the fault of an instruction. False if it is not one that is answered.
  bool answer_instruction(Thread& thread, int signal, const user_regs_struct& regs);
  // An instruction was answered: it is an event.
  void add_trap(Thread& thread, const TrappedInstruction& trap, const user_regs_struct& before,
                const user_regs_struct& after);
  // A call of the vsyscall page, at its entry: makes it for the thread, and has the kernel skip it.
  void answer_vsyscall(Thread& thread);

 private:
  void go_on(Thread& thread, const user_regs_struct& regs);

  Tracer& tracer_;
  GateArena* arena_;
  CpuidAnswers& answers_;
  ThreadControl& control_;
  CallEvents& events_;
  CodePatching& patching_;
  SignalDelivery& signals_;
  ForcedSignals& forced_;
  Turns& turns_;
  StoppedCalls& stopped_calls_;
};

}  // namespace redrive
