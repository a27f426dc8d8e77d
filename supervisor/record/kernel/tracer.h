// The seam between the recorder and the kernel: what it asks of the threads that it traces, and of the time. Nothing
// else in the recorder traces, waits for tracees or reads a clock, so its parts can be tested without processes
// (tests/unit/fake_tracer.h).
//
// A stop is made into a value of its own in one place (stop_of(), ptrace_tracer.h); the code that handles it decides by
// its type. A tracee may be killed at any moment, even while it is stopped. That is data, not an error: what was asked
// of it fails or is lost, and its end comes as a stop (Gone) when it is waited for.
//
// A tracer belongs to the thread that makes it, because ptrace(2) does: only that thread may call it, except now(),
// unix_ns() and cpu_ns(), which any thread may call. The tracer keeps nothing of a tracee; thread ids are the kernel's.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/user.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <variant>

#include "base/bytes.h"
#include "base/remote.h"
#include "base/result.h"
#include "supervisor/record/kernel/process_status.h"

namespace redrive {

using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC
inline uint64_t since_boot_ns(Clock::time_point time) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

// How a thread or process has ended (waitpid(2)).
struct TraceeEnd {
  int exit_status = 0;
  int signal = 0;  // that has killed it; 0: it has exited by itself

  bool killed() const { return signal != 0; }
  // As shells have it.
  int shell_status() const { return killed() ? 128 + signal : exit_status; }
  bool operator==(const TraceeEnd&) const = default;
};

// ---- Stops (ptrace(2), "Stopped states")

// It has stopped at the entry of a call, which has not begun (PTRACE_EVENT_SECCOMP, or a syscall-stop).
struct SyscallEntry {
  bool operator==(const SyscallEntry&) const = default;
};
// It comes out of a call: it was resumed inside of it, with Resume::to_syscall_exit; or no filter stops its calls, and
// this one was skipped.
struct SyscallExit {
  bool operator==(const SyscallExit&) const = default;
};
// It has made a thread or process, and is still in that call.
struct Birth {
  pid_t child = -1;  // 0: it was killed meanwhile
  bool operator==(const Birth&) const = default;
};
// It has begun another program. All other threads of its process have ended, and it has the process's number now.
struct Exec {
  pid_t former_tid = -1;  // its own until then; 0: it was killed meanwhile
  bool operator==(const Exec&) const = default;
};
// A signal is about to be delivered, or an instruction was stepped over (SIGTRAP); get_siginfo() tells more. It is
// delivered only if the thread is resumed with it.
struct SignalStop {
  int signal = 0;
  bool operator==(const SignalStop&) const = default;
};
// Its process has been stopped by this signal.
struct GroupStop {
  int signal = 0;
  bool operator==(const GroupStop&) const = default;
};
// It was interrupted by interrupt(), has just been born, or its process continues after it was stopped.
struct Interrupted {
  bool operator==(const Interrupted&) const = default;
};
// It is about to end, and still has its memory. Only after TraceeOption::reports_exit.
struct Exiting {
  TraceeEnd end;
  bool operator==(const Exiting&) const = default;
};
// It has ended: not a tracee any more.
struct Gone {
  TraceeEnd end;
  bool operator==(const Gone&) const = default;
};

using Stop = std::variant<SyscallEntry, SyscallExit, Birth, Exec, SignalStop, GroupStop, Interrupted, Exiting, Gone>;

template <typename Kind>
bool is(const Stop& stop) {
  return std::holds_alternative<Kind>(stop);
}

// A tracee and its stop.
struct Stopped {
  pid_t tid = -1;
  Stop stop;
  bool operator==(const Stopped&) const = default;
};

// ---- Answers of a wait

// None has stopped: a signal to redrive itself came first, or the call does not wait.
struct NoneStopped {};
// There are no tracees.
struct NoTracees {};
using Waited = std::variant<Stopped, NoneStopped, NoTracees>;

// Until when a thread runs.
enum class Resume : uint8_t {
  cont,             // its next stop of any other kind
  to_syscall_exit,  // it comes out of the call that it is in
  step,             // one instruction is over, or it is before the first one of a handler
};

// What can be asked of the kernel for one tracee (ptrace(2), PTRACE_SETOPTIONS).
enum class TraceeOption : uint8_t {
  killed_with_tracer,  // it is killed when the tracer ends, whatever it is
  reports_exit,        // it stops once more before it ends
  ignores_filters,     // those of seccomp(2)
  heeds_filters,       // ... again
};

class Tracer {
 public:
  virtual ~Tracer() = default;

  // Waits until a tracee has stopped or ended. Of several, waitpid(2) names the youngest first.
  virtual Waited wait_for_any() = 0;
  // Takes one that has stopped or ended already, without waiting.
  virtual Waited take_any() = 0;
  // Waits until this one has stopped or ended, whatever signals come. Nothing if it is not a tracee.
  virtual std::optional<Stop> wait(pid_t tid) = 0;
  // Whether wait() would return at once.
  virtual bool has_stopped(pid_t tid) = 0;

  // Traces a thread, and all that it starts. It runs on. When the tracer ends, children of this process are killed, and
  // others run on untraced.
  virtual Result<void> seize(pid_t tid) = 0;
  // Lets a stopped thread run untraced. `signal` is delivered to it; 0: none.
  virtual void detach(pid_t tid, int signal = 0) = 0;
  // The thread is stopped. False if it must not be so.
  virtual bool set_option(pid_t tid, TraceeOption option) = 0;
  // The thread is stopped. Nothing if it has registered none.
  virtual std::optional<RseqArea> rseq(pid_t tid) = 0;
  // Lets a stopped thread run. `signal` is delivered to it; 0: none.
  virtual void resume(pid_t tid, Resume how, int signal = 0) = 0;
  // Leaves a thread in its group stop: it is not resumed, and stops again when the group continues (PTRACE_LISTEN).
  virtual void listen(pid_t tid) = 0;
  // Has a running thread stop where it is, or where it sleeps in the kernel. Another stop that comes first takes its
  // place. False if it has been killed.
  virtual bool interrupt(pid_t tid) = 0;

  // The thread must be stopped. False, or empty, if it was killed meanwhile.
  virtual bool get_regs(pid_t tid, user_regs_struct& regs) = 0;
  virtual bool set_regs(pid_t tid, const user_regs_struct& regs) = 0;
  virtual Bytes get_xstate(pid_t tid) = 0;  // NT_X86_XSTATE
  // Describes the signal for which the thread has stopped; for other stops see ptrace(2), PTRACE_GETSIGINFO.
  virtual bool get_siginfo(pid_t tid, siginfo_t& info) = 0;
  virtual bool set_siginfo(pid_t tid, const siginfo_t& info) = 0;
  // Bit N-1 for signal N.
  virtual bool get_signal_mask(pid_t tid, uint64_t& mask) = 0;
  virtual bool set_signal_mask(pid_t tid, uint64_t mask) = 0;
  // Of any process, whether it is stopped or not.
  virtual Result<Memory> open_memory(pid_t pid) = 0;
  // Whether a thread of any process, stopped or not, still has its memory: not if it was killed, and ends.
  virtual bool has_memory(pid_t tid) = 0;
  // Whether a process sees the same processes as this one, and may access this one's files (proc(5)).
  virtual bool sees_tracer(pid_t pid) = 0;
  // Those of any process or thread, whether it is stopped or not.
  virtual SignalMasks signal_masks(pid_t tid) = 0;

  // Sends a signal to a process, or to one of its threads. False if there is no such process or thread, or if it may
  // not be sent one.
  virtual bool send(pid_t pid, int signal) = 0;
  virtual bool send(pid_t pid, pid_t tid, int signal) = 0;

  // ---- Time
  virtual Clock::time_point now() const = 0;
  // The wall clock, in nanoseconds since the epoch. It may be set meanwhile.
  virtual int64_t unix_ns() const = 0;
  // CPU time of all threads of a process (clock_getcpuclockid(3)). Nothing if it has ended.
  virtual std::optional<uint64_t> cpu_ns(pid_t pid) const = 0;
  // wait_for_any() ends within this time.
  virtual void wake_within(std::chrono::microseconds time) = 0;
  // wait_for_any() ends also when the process has used this much more CPU time, or up to a tick of the kernel's later
  // (4 to 10 ms), and again now and then while it goes on to use it. What was asked for the process before is
  // forgotten. False if the process has ended, or if there can be no more timers (timer_create(2)).
  virtual bool wake_when_used(pid_t pid, std::chrono::nanoseconds cpu) = 0;
};

}  // namespace redrive
