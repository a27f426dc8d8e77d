// Gives back to processes what a recorder that was killed has taken from them (NativeState): counters, clocks that are
// read without a system call, the processors that they may run on. What only the recorder knew is lost: signals that it
// held, and areas for restartable sequences (rseq(2)), without which programs do.
#pragma once

#include <sched.h>

#include <map>
#include <vector>

#include "supervisor/record/attach/attachable.h"
#include "supervisor/record/front/lifeline.h"
#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/kernel/tracer.h"

namespace redrive {

class Healer {
 public:
  // Notes how the processes are before a recorder attaches to them.
  explicit Healer(const AttachableTree& tree);

  // Stops the processes and their descendants (SIGSTOP), as soon as the recorder is known to have been killed.
  void stop(const RecordedProcesses& recorded);
  // They continue then. With catch_interrupts() in effect.
  Result<void> heal(const InjectedCall& injected);

 private:
  Result<void> heal(Tracer& tracer, TraceeCalls& calls, pid_t pid, const std::vector<pid_t>& tids);
  const cpu_set_t& processors_of(pid_t pid, pid_t tid) const;

  std::map<pid_t, cpu_set_t> processors_;  // by process and thread
  std::vector<pid_t> pids_;                // parents first; after stop(), all that were stopped
};

}  // namespace redrive
