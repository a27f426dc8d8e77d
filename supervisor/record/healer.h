// Gives back to processes what a recorder that was killed has taken from them (NativeState): counters, clocks that are
// read without a system call, the processors that they may run on. What only the recorder knew is lost: signals that it
// held, and areas for restartable sequences (rseq(2)), without which programs do.
#pragma once

#include <sched.h>
#include <sys/user.h>

#include <array>
#include <atomic>
#include <map>

#include "supervisor/record/attachable.h"
#include "supervisor/record/tracee_calls.h"
#include "supervisor/record/tracer.h"

namespace redrive {

// A call that a thread was making for the recorder.
struct InjectedCall {
  std::atomic<pid_t> tid{0};  // 0: none
  user_regs_struct regs{};    // the thread's own
  uint64_t mask = 0;
};

// The processes that the recorder traces, as far as there is room: to look for descendants in /proc takes longer than a
// program takes to its first instruction that only a recorder could answer. The recorder writes, the guard reads.
class RecordedProcesses {
 public:
  void add(pid_t pid);
  void remove(pid_t pid);
  // Calls visit(PID) for each.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (size_t i = 0; i < used_; ++i) {
      if (const pid_t pid = pids_[i]) visit(pid);
    }
  }

 private:
  static constexpr size_t kMost = 4096;
  std::array<std::atomic<pid_t>, kMost> pids_{};  // 0: none
  std::atomic<size_t> used_{0};                   // there are none from here on
};

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
