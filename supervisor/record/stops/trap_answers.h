// Answers what traps and is not a system call to the program: rdtsc, rdtscp, cpuid, and calls of the vsyscall page.
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

class TrapAnswers {
 public:
  TrapAnswers(GateArena* arena, CpuidAnswers& answers, ThreadControl& control, CallEvents& events,
              CodePatching& patching, ForcedSignals& forced, StoppedCalls& stopped_calls)
      : arena_(arena),
        answers_(answers),
        control_(control),
        events_(events),
        patching_(patching),
        forced_(forced),
        stopped_calls_(stopped_calls) {}

  // A thread has stopped for the fault of an instruction. False if it is not one that is answered.
  bool answer_instruction(Thread& thread, int signal, const user_regs_struct& regs);
  // An instruction was answered: it is an event.
  void add_trap(Thread& thread, const TrappedInstruction& trap, const user_regs_struct& before,
                const user_regs_struct& after);
  // A call of the vsyscall page, at its entry: makes it for the thread.
  void answer_vsyscall(Thread& thread);

 private:
  GateArena* arena_;
  CpuidAnswers& answers_;
  ThreadControl& control_;
  CallEvents& events_;
  CodePatching& patching_;
  ForcedSignals& forced_;
  StoppedCalls& stopped_calls_;
};

}  // namespace redrive
