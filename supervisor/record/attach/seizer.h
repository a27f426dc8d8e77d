// Stops all threads of processes that run freely, and of their descendants, where they can be recorded from: in user
// code, in a call that the kernel will enter again, or at a handler's first instruction.
//
// All of them are stopped or none: a server must not wait for a thread that sleeps where nothing wakes it. If one does
// not stop, the others run on for a while, and it is tried again.
#pragma once

#include <sched.h>
#include <signal.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/result.h"
#include "supervisor/record/attach/attachable.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/placement/placement.h"

namespace redrive {

class Seizer {
 public:
  // What becomes of processes that were stopped by a signal, unless a killed recorder has left them so.
  enum class Stops : uint8_t { refused, continued };
  // Lists processes with all their descendants, but may leave some out while others end (process_tree()).
  using List = std::function<std::vector<pid_t>(const std::vector<pid_t>& roots)>;
  Seizer(Tracer& tracer, const Placement& placement, Stops stops = Stops::refused, List list = process_tree)
      : tracer_(tracer), placement_(placement), stops_(stops), list_(std::move(list)) {}

  // Fails if one of these processes has ended, or if a thread cannot be stopped. Then all run on.
  Result<void> stop_all(const std::vector<pid_t>& roots);
  // The signal that has stopped the thread is not delivered to it.
  void drop_signal(pid_t tid) { seized_.at(tid).signal.reset(); }
  // Lets those that have stopped run on untraced. Others do that when the tracer ends.
  void release();

  struct Seized {
    pid_t pid = -1;
    cpu_set_t processors{};           // that it may run on
    std::optional<siginfo_t> signal;  // that has stopped it, and has no handler
  };
  // After stop_all(): the threads that are stopped.
  const std::map<pid_t, Seized>& threads() const { return seized_; }
  // Since when.
  Clock::time_point stopped_at() const { return stopped_at_; }

 private:
  enum class Missing : uint8_t { none, some };  // threads that have not stopped in time

  Result<Missing> try_to_stop(const std::vector<pid_t>& roots, Clock::duration patience);
  Result<bool> seize_new(const std::vector<pid_t>& roots);
  Result<Missing> await_stops(Clock::duration patience);
  Result<void> take_stop(const Stopped& stopped);
  Result<void> take_signal(pid_t tid, int signal);
  void add(pid_t tid);
  void forget(pid_t tid);
  bool continues(pid_t pid) const;  // if it was stopped by a signal
  bool is_between_vfork_and_exec(pid_t tid);
  bool only_waits_for_processor() const;
  void let_run(Clock::duration time);
  void let_run(pid_t tid, int signal);
  void restart_woken(pid_t tid);

  Tracer& tracer_;
  const Placement& placement_;
  const Stops stops_;
  const List list_;
  std::map<pid_t, Seized> seized_;
  std::set<pid_t> running_;   // of these
  std::set<pid_t> stepping_;  // ... into handlers
  std::set<pid_t> on_way_;    // ... from vfork(2) to their programs
  Clock::time_point stopped_at_{};
};

}  // namespace redrive
