// A process that traces threads of another one with the same memory (ptrace(2)), as LeakSanitizer does at a program's
// end: it stops them, looks at their registers and lets them go. The kernel lets a thread have only one tracer, and
// that is the recorder; so this class answers in the kernel's place. Threads that are "stopped" do not get the baton.
// In a replay, results and what was written are enough.
//
// A process that lets nobody but root look into it (PR_SET_DUMPABLE, prctl(2)) could not be recorded by another user,
// tracer or not, because /proc would not show its memory and its files. So the kernel is not told, unless root records
// it, or it is attached to, and is to be as it wants when it is let go.
#pragma once

#include <optional>
#include <vector>

#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Tracees;
class Findings;
class ThreadControl;
class StateCapture;
class CallEvents;

class TracerAnswers {
 public:
  TracerAnswers(const RecorderLimits& limits, Tracees& tracees, Findings& findings, ThreadControl& control,
                StateCapture& capture, CallEvents& events)
      : limits_(limits),
        tracees_(tracees),
        findings_(findings),
        control_(control),
        capture_(capture),
        events_(events) {}

  // At the entry of ptrace, of a wait for a thread that was attached to, or of prctl. False if it is none of these, or
  // the kernel may answer.
  bool answer(Thread& thread);

 private:
  std::optional<int64_t> set_dumpable(const Thread& thread) const;
  int64_t trace(Thread& thread, std::vector<MemoryWrite>& writes);
  int64_t read_registers(Thread& thread, Thread& target, std::vector<MemoryWrite>& writes);

  const RecorderLimits& limits_;
  Tracees& tracees_;
  Findings& findings_;
  ThreadControl& control_;
  StateCapture& capture_;
  CallEvents& events_;
};

// The thread is no longer stopped by the process that traces it, and waits for the baton if it has to.
void let_go(Thread& target);

}  // namespace redrive
