// Hands the baton over where a thread waits for another one in a loop without a call, as OpenMP's barriers and the
// ranks of MPI jobs do. Once such a loop was met, one of its instructions is preceded by a jump to the tier, which
// counts how often each thread comes there, and stops the thread while others wait. The event says how often it has
// come there since its event before. A replay counts, too.
//
// A loop is met by a look at a thread that has had the baton for 1 ms while others wait (LoopLooks). A thread that is
// in the middle of its code when the counting begins is not stopped there before its next event.
#pragma once

#include "supervisor/record/code/loop_search.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class CodePatching;
class ServedCalls;
class Steps;
class ThreadControl;
class Turns;

class LoopHandover {
 public:
  LoopHandover(Tracer& tracer, const RecorderLimits& limits, CodePatching& patching, ThreadControl& control,
               ServedCalls& served, Steps& steps, Turns& turns)
      : tracer_(tracer),
        limits_(limits),
        patching_(patching),
        control_(control),
        served_(served),
        steps_(steps),
        turns_(turns) {}

  // Interrupts the unit's running thread, which has the baton, if it may wait for one that waits for the baton, to look
  // at what it executes.
  void watch(Unit& unit);
  // The thread was interrupted for that, to execute so many instructions at most. If they are such a loop, one of them
  // is preceded by a jump to the tier. Returns whether the thread was resumed; otherwise it has to be.
  bool look(Thread& thread, unsigned instructions);
  // The thread has come to such an instruction so often since its event before, and has stopped before it, in the
  // tier's code, with these registers.
  void waits(Thread& thread, user_regs_struct regs, uint64_t times);

 private:
  LoopSearch::Loop find_loop(Thread& thread, unsigned instructions, user_regs_struct& regs, bool& handled);
  bool precede(Thread& thread, const user_regs_struct& regs, const LoopSearch::Loop& loop);

  Tracer& tracer_;
  const RecorderLimits& limits_;
  CodePatching& patching_;
  ThreadControl& control_;
  ServedCalls& served_;
  Steps& steps_;
  Turns& turns_;
};

}  // namespace redrive
