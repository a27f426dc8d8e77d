// A tracer without a kernel: tracees are scripts of stops, and time passes only when a test says so.
//
// Like a real one, a tracee runs or is stopped. If it is waited for while it runs, it comes to the next stop of its
// script. Requests about it fail or are lost while it is not stopped, as with ptrace(2). All requests are noted in
// `asked`, one line each.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/stopped_tracees.h"

namespace redrive {

class FakeTracer : public StoppedTracees {
 public:
  struct Tracee : TraceeContext {
    std::deque<Stop> script;
    bool stopped = false;
    SignalMasks signals;
  };

  // Adds a tracee that runs and comes to these stops. After the last one, it runs until it is interrupted or killed.
  Tracee& add(pid_t tid, std::vector<Stop> script = {});
  // Null if there is none, or if it has ended and was waited for.
  Tracee* find(pid_t tid);
  void pass(Clock::duration time) { now_ = now_.load() + time; }

  // The requests: "10: cont", "10: step with 15", "10: interrupt", "5: send 9", "5/10: send 9" (to a thread), "wake
  // within 100 us", "5: wake when 3000 us are used".
  std::vector<std::string> asked;
  int64_t wall_clock_ns = 0;            // how far the wall clock is from now()
  std::map<pid_t, uint64_t> cpu_ns_of;  // by process; one that is missing has ended

  // Where a real tracer would wait for a signal to redrive, time passes up to the next wake-up that was asked for.
  Waited wait_for_any() override;
  Waited take_any() override;
  // A tracee that nothing will stop cannot be waited for: the test fails.
  std::optional<Stop> wait(pid_t tid) override;
  bool has_stopped(pid_t tid) override;

  Result<void> seize(pid_t tid) override;
  void detach(pid_t tid, int signal) override;
  bool set_option(pid_t tid, TraceeOption option) override;
  void resume(pid_t tid, Resume how, int signal) override;
  void listen(pid_t tid) override;
  bool interrupt(pid_t tid) override;

  // Returns the mask above as the blocked signals.
  SignalMasks signal_masks(pid_t tid) override;

  // A signal to a thread is pending until the thread stops for it. SIGKILL ends the tracee: it is no longer stopped
  // where it was, and its end is its next stop.
  bool send(pid_t pid, int signal) override;
  bool send(pid_t pid, pid_t tid, int signal) override;

  Clock::time_point now() const override { return now_; }
  int64_t unix_ns() const override {
    return wall_clock_ns + std::chrono::nanoseconds(now().time_since_epoch()).count();
  }
  std::optional<uint64_t> cpu_ns(pid_t pid) const override;
  void wake_within(std::chrono::microseconds time) override;
  // Time passes as long as nothing happens, but CPU time does not.
  bool wake_when_used(pid_t pid, std::chrono::nanoseconds cpu) override;

 private:
  Tracee* stopped(pid_t tid);
  TraceeContext* context(pid_t tid) override { return stopped(tid); }
  Stop take(pid_t tid);
  void kill(Tracee& tracee);

  std::map<pid_t, Tracee> tracees_;
  std::vector<pid_t> by_age_;             // as they were added
  std::atomic<Clock::time_point> now_{};  // for any thread
  Clock::duration wake_{};
};

}  // namespace redrive
