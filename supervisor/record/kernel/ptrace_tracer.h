// The tracer of a recording: ptrace(2), waitpid(2) and the clocks. All that the recorder asks of them is asked here; it
// decides nothing.
#pragma once

#include <deque>
#include <map>

#include "supervisor/record/kernel/cpu_timer.h"
#include "supervisor/record/kernel/tracer.h"

namespace redrive {

// Whether PTRACE_GETEVENTMSG has a message for a tracee that has stopped with this status of waitpid(2).
bool has_message(int status);
// What the status says; `message` is that of PTRACE_GETEVENTMSG, if there is one: 0 if the tracee was killed before it
// could be asked, or if nothing is known of it.
Stop stop_of(int status, unsigned long message);

// Stops that came while another tracee was waited for.
class EarlyStops {
 public:
  void add(const Stopped& stopped) { stops_.push_back(stopped); }
  bool holds(pid_t tid) const;
  // The first one, or that of this tracee, which is here no more. Nothing if there is none.
  std::optional<Stopped> take();
  std::optional<Stop> take(pid_t tid);

 private:
  std::deque<Stopped> stops_;
};

using CpuTimers = std::map<pid_t, CpuTimer>;  // by process

class PtraceTracer final : public Tracer {
 public:
  // What stops tracees at calls: a filter of theirs, or this tracer, which then stops them at each entry and exit.
  // Those that have a filter are children of this process.
  enum class Calls : uint8_t { filtered, all };
  explicit PtraceTracer(Calls calls = Calls::filtered) : calls_(calls) {}

  Waited wait_for_any() override;
  Waited take_any() override;
  std::optional<Stop> wait(pid_t tid) override;
  bool has_stopped(pid_t tid) override;

  Result<void> seize(pid_t tid) override;
  void detach(pid_t tid, int signal) override;
  bool set_option(pid_t tid, TraceeOption option) override;
  std::optional<RseqArea> rseq(pid_t tid) override;
  void resume(pid_t tid, Resume how, int signal) override;
  void listen(pid_t tid) override;
  bool interrupt(pid_t tid) override;

  bool get_regs(pid_t tid, user_regs_struct& regs) override;
  bool set_regs(pid_t tid, const user_regs_struct& regs) override;
  Bytes get_xstate(pid_t tid) override;
  bool get_siginfo(pid_t tid, siginfo_t& info) override;
  bool set_siginfo(pid_t tid, const siginfo_t& info) override;
  bool get_signal_mask(pid_t tid, uint64_t& mask) override;
  bool set_signal_mask(pid_t tid, uint64_t mask) override;
  Result<Memory> open_memory(pid_t pid) override;
  bool has_memory(pid_t tid) override;
  bool sees_tracer(pid_t pid) override;
  SignalMasks signal_masks(pid_t tid) override;

  bool send(pid_t pid, int signal) override;
  bool send(pid_t pid, pid_t tid, int signal) override;

  Clock::time_point now() const override;
  int64_t unix_ns() const override;
  std::optional<uint64_t> cpu_ns(pid_t pid) const override;
  // Uses the timer of catch_interrupts() (interrupts.h), which must be called before.
  void wake_within(std::chrono::microseconds time) override;
  bool wake_when_used(pid_t pid, std::chrono::nanoseconds cpu) override;

 private:
  Calls calls_;
  EarlyStops early_;
  CpuTimers timers_;  // of wake_when_used()
};

}  // namespace redrive
