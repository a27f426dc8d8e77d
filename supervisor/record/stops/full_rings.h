// Stops that come only because a ring is full: what is there becomes events elsewhere, and the thread goes on.
#pragma once

#include "supervisor/record/tracees/recorded.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class Checkpointer;
class Messages;
class ServedCalls;
class ThreadControl;
class Tracer;

class FullRings {
 public:
  FullRings(Tracer& tracer, Messages& messages, GateArena* arena, ThreadControl& control, Checkpointer& checkpointer,
            ServedCalls& served)
      : tracer_(tracer),
        messages_(messages),
        arena_(arena),
        control_(control),
        checkpointer_(checkpointer),
        served_(served) {}

  // The thread has stopped at the entry of a call. If that is because its ring is full, the thread continues, and its
  // call is served after all.
  bool serve_again(Thread& thread) EXCLUDES(recorded);

 private:
  bool wants_stop(Unit& unit) REQUIRES(recorded);

  Tracer& tracer_;
  Messages& messages_ GUARDED_BY(recorded);
  GateArena* arena_;
  ThreadControl& control_;
  Checkpointer& checkpointer_ GUARDED_BY(recorded);
  ServedCalls& served_;
};

}  // namespace redrive
