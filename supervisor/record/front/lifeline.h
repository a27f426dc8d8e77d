// What a recorder shares with its guard (guard.h), so that this finds out at once if it is killed, and knows what it
// was doing then. Without a guard, the functions do nothing.
#pragma once

#include <sys/types.h>
#include <sys/user.h>

#include <array>
#include <atomic>
#include <optional>
#include <stop_token>

#include "base/result.h"

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

// ---- For the guard

// Before the recorder is forked.
Result<void> make_lifeline();
// Waits until the thread that traces has let go of the lifeline. Nothing if `over` says that it never will.
enum class LetGo : uint8_t { released, killed };
std::optional<LetGo> wait_for_lifeline(const std::stop_token& over);
const InjectedCall& injected_call();
const RecordedProcesses& recorded_processes();

// ---- For the recorder

// In the thread that traces, which holds the lifeline from now on as long as it may trace somebody.
void hold_lifeline();
void release_lifeline();  // does nothing if the thread does not hold it: the mutex is a robust one
// The thread is about to make a call for the recorder. If that is killed during it, the guard gives these registers and
// this signal mask back to the thread.
void note_injected(pid_t tid, const user_regs_struct& regs, uint64_t mask);
// It has them again.
void forget_injected();
// The process is recorded, and has not run yet since it was born. The guard stops it at once if the recorder is killed.
void note_recorded(pid_t pid);
// It has ended.
void forget_recorded(pid_t pid);

}  // namespace redrive
