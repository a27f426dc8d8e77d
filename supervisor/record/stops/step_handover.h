// Hands the baton over while the thread that has it stands some instructions after a call (StepTurns). The event says
// where: how often the thread has come there since its event before. A replay takes the same steps.
//
// If the call may sleep, the baton is kept for the thread while it does, up to the next tick.
#pragma once

#include <optional>

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class ThreadControl;
class Steps;
class Turns;

class StepHandover {
 public:
  StepHandover(Tracer& tracer, const RecorderLimits& limits, ThreadControl& control, Steps& steps, Turns& turns)
      : tracer_(tracer), limits_(limits), control_(control), steps_(steps), turns_(turns) {}

  // The thread, which has the baton, is about to run user code after a call, from there. It goes on, and gives the
  // baton to the next one that waits for it, unless it comes to an event first.
  void go_on(Thread& thread, const user_regs_struct& from);

 private:
  struct Place {
    user_regs_struct regs{};
    uint64_t steps = 0;  // up to there
    uint64_t times = 0;  // that the thread has come there
  };
  std::optional<Place> find_place(Thread& thread, Address from, bool& handled);

  Tracer& tracer_;
  const RecorderLimits& limits_;
  ThreadControl& control_;
  Steps& steps_;
  Turns& turns_;
};

}  // namespace redrive
