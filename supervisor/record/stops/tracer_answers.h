// A process that traces threads of another one with the same memory (ptrace(2)), as LeakSanitizer does at a program's
// end: it stops them, looks at their registers and lets them go. The kernel lets a thread have only one tracer, and
// that is the recorder; so this class answers in the kernel's place. Threads that are "stopped" do not get the baton.
// In a replay, results and what was written are enough.
#pragma once

#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Tracees;
class Findings;
class ThreadControl;
class StateCapture;
class CallEvents;

class TracerAnswers {
 public:
  TracerAnswers(Tracees& tracees, Findings& findings, ThreadControl& control, StateCapture& capture, CallEvents& events)
      : tracees_(tracees), findings_(findings), control_(control), capture_(capture), events_(events) {}

  // At the entry of ptrace, or of a wait for a thread that was attached to. False if it is neither.
  bool answer(Thread& thread);

 private:
  int64_t trace(Thread& thread, std::vector<MemoryWrite>& writes);
  int64_t read_registers(Thread& thread, Thread& target, std::vector<MemoryWrite>& writes);

  Tracees& tracees_;
  Findings& findings_;
  ThreadControl& control_;
  StateCapture& capture_;
  CallEvents& events_;
};

// The thread is no longer stopped by the process that traces it, and waits for the baton if it has to.
void let_go(Thread& target);

}  // namespace redrive
