// Handles calls that programs have forbidden themselves (confinement.h). This is decided at the entry of each call,
// before anything else is done about it; calls that are always allowed are served inside the program as usual.
#pragma once

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Findings;
class ThreadControl;
class CallEvents;
class SignalDelivery;
class Ends;
class StoppedCalls;

class ConfinedCalls {
 public:
  ConfinedCalls(Tracer& tracer, Findings& findings, ThreadControl& control, CallEvents& events, SignalDelivery& signals,
                Ends& ends, StoppedCalls& stopped_calls)
      : tracer_(tracer),
        findings_(findings),
        control_(control),
        events_(events),
        signals_(signals),
        ends_(ends),
        stopped_calls_(stopped_calls) {}

  // The thread is at the entry of a call. True if the call is forbidden; then it has been handled here, and nothing was
  // logged before.
  bool forbidden(Thread& thread);
  // Answers a call by which the thread asks or says what is forbidden.
  void confine(Thread& thread);

 private:
  void end_forbidden(Thread& thread, int signal, bool whole_process);

  Tracer& tracer_;
  Findings& findings_;
  ThreadControl& control_;
  CallEvents& events_;
  SignalDelivery& signals_;
  Ends& ends_;
  StoppedCalls& stopped_calls_;
};

}  // namespace redrive
