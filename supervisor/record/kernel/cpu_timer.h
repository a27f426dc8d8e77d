// A timer on the CPU time that another process uses (clock_getcpuclockid(3), timer_create(2)). It interrupts the thread
// that has made it, as the timer of catch_interrupts() does.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <utility>

namespace redrive {

// The clock of the CPU time of all threads of a process.
clockid_t cpu_clock_of(pid_t pid);

class CpuTimer {
 public:
  // Nothing if the process has ended, or if this process may have no more timers.
  static std::optional<CpuTimer> make(pid_t pid);
  ~CpuTimer();
  CpuTimer(CpuTimer&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  CpuTimer& operator=(CpuTimer&&) = delete;

  // Interrupts when the process has used so much from now on, and every kAgain after that: one that comes right before
  // the thread sleeps in a call is lost. False if the process has ended.
  bool set(std::chrono::nanoseconds cpu);
  static constexpr std::chrono::milliseconds kAgain{20};

 private:
  explicit CpuTimer(int id) : id_(id) {}

  int id_;
};

}  // namespace redrive
