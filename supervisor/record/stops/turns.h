// Whose turn it is in each unit: hands the baton to the threads that wait for it, and has their stops handled.
#pragma once

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class ThreadControl;
class Checkpointer;
class GateStops;
class ForeignMemory;
class Preempter;
class Joiner;
class Births;
class StoppedCalls;

class Turns {
 public:
  Turns(Tracer& tracer, ThreadControl& control, Checkpointer& checkpointer, GateStops& gate_stops,
        ForeignMemory& foreign, Preempter& preempter, Joiner& joiner, Births& births, StoppedCalls& stopped_calls)
      : tracer_(tracer),
        control_(control),
        checkpointer_(checkpointer),
        gate_stops_(gate_stops),
        foreign_(foreign),
        preempter_(preempter),
        joiner_(joiner),
        births_(births),
        stopped_calls_(stopped_calls) {}

  // The thread has come to a stop that is handled when it has the baton.
  void take_or_queue(Thread& thread, Thread::Ready ready);
  // Takes the unit's baton from its holder, and calls schedule().
  void give_up(Unit& unit);
  // The thread, which has the baton, stands in user code with these registers, right after an event: others have their
  // turn.
  void give_way(Thread& thread, const user_regs_struct& regs);
  // Gives the unit's baton to the next thread that waits for it, if nobody has it.
  void schedule(Unit& unit);
  // The thread that it is kept for has had time to come.
  void stop_keeping(Unit& unit);

 private:
  bool woke_nobody(const Thread& waker) const;

  Tracer& tracer_;
  ThreadControl& control_;
  Checkpointer& checkpointer_;
  GateStops& gate_stops_;
  ForeignMemory& foreign_;
  Preempter& preempter_;
  Joiner& joiner_;
  Births& births_;
  StoppedCalls& stopped_calls_;
};

}  // namespace redrive
