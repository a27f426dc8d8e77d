#include "supervisor/record/kernel/ptrace_tracer.h"

#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/assert.h"
#include "base/procfs.h"
#include "base/remote.h"
#include "checkpoint/stub.h"
#include "supervisor/record/front/interrupts.h"

namespace redrive {
namespace {

constexpr long kOptions =
    PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;

__ptrace_request request_of(Resume how, PtraceTracer::Calls calls) {
  switch (how) {
    case Resume::cont:
      return calls == PtraceTracer::Calls::filtered ? PTRACE_CONT : PTRACE_SYSCALL;
    case Resume::to_syscall_exit:
      return PTRACE_SYSCALL;
    case Resume::step:
      break;
  }
  return PTRACE_SINGLESTEP;
}

constexpr int kAll = __WALL | __WNOTHREAD;  // children of this thread

constexpr int kSyscallStop = SIGTRAP | 0x80;  // PTRACE_O_TRACESYSGOOD
constexpr unsigned long kEntry = 1;           // PTRACE_EVENTMSG_SYSCALL_ENTRY, in linux/ptrace.h

TraceeEnd end_of(int status) {
  return WIFSIGNALED(status) ? TraceeEnd{0, WTERMSIG(status)} : TraceeEnd{WEXITSTATUS(status), 0};
}

// What waitpid(2) adds to a stop's signal; 0: nothing.
int event_of(int status) { return WIFSTOPPED(status) ? status >> 16 : 0; }

long options_of(PtraceTracer::Calls calls) {
  const bool filtered = calls == PtraceTracer::Calls::filtered;
  return kOptions | (filtered ? PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL : PTRACE_O_TRACEEXIT);
}

}  // namespace

bool EarlyStops::holds(pid_t tid) const {
  return std::any_of(stops_.begin(), stops_.end(), [&](const Stopped& stopped) { return stopped.tid == tid; });
}

std::optional<Stopped> EarlyStops::take() {
  if (stops_.empty()) return {};
  const Stopped first = stops_.front();
  stops_.pop_front();
  return first;
}

std::optional<Stop> EarlyStops::take(pid_t tid) {
  const auto of =
      std::find_if(stops_.begin(), stops_.end(), [&](const Stopped& stopped) { return stopped.tid == tid; });
  if (of == stops_.end()) return {};
  const Stop stop = of->stop;
  stops_.erase(of);
  return stop;
}

bool has_message(int status) {
  switch (event_of(status)) {
    case PTRACE_EVENT_CLONE:
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_EXEC:
    case PTRACE_EVENT_EXIT:
      return true;
    default:
      return false;
  }
}

Stop stop_of(int status, unsigned long message) {
  if (!WIFSTOPPED(status)) return Gone{end_of(status)};
  const int signal = WSTOPSIG(status);
  switch (event_of(status)) {
    case 0:
      if (signal != kSyscallStop) return SignalStop{signal};
      if (message == kEntry) return SyscallEntry{};
      return SyscallExit{};
    case PTRACE_EVENT_SECCOMP:
      return SyscallEntry{};
    case PTRACE_EVENT_CLONE:
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
      return Birth{static_cast<pid_t>(message)};
    case PTRACE_EVENT_EXEC:
      return Exec{static_cast<pid_t>(message)};
    case PTRACE_EVENT_STOP:
      if (signal == SIGTRAP) return Interrupted{};
      return GroupStop{signal};
    default:
      break;
  }
  ASSERT(event_of(status) == PTRACE_EVENT_EXIT);  // no other events are asked for
  return Exiting{end_of(static_cast<int>(message))};
}

namespace {

// The message is asked for at once: the tracee may be killed later. One that has ended needs no timer.
Stop read_stop(PtraceTracer::Calls calls, CpuTimers& timers, pid_t tid, int status) {
  if (!WIFSTOPPED(status)) timers.erase(tid);
  const bool at_call = calls == PtraceTracer::Calls::all && WIFSTOPPED(status) && status >> 8 == kSyscallStop;
  return stop_of(status, at_call || has_message(status) ? event_message(tid) : 0);
}

Waited wait_with(EarlyStops& early, PtraceTracer::Calls calls, CpuTimers& timers, int flags) {
  if (const auto first = early.take()) return *first;
  int status = 0;
  const pid_t tid = waitpid(-1, &status, kAll | flags);
  if (tid > 0) return Stopped{tid, read_stop(calls, timers, tid, status)};
  if (tid < 0 && errno == ECHILD) return NoTracees{};
  return NoneStopped{};
}

}  // namespace

Waited PtraceTracer::wait_for_any() { return wait_with(early_, calls_, timers_, 0); }

Waited PtraceTracer::take_any() { return wait_with(early_, calls_, timers_, WNOHANG); }

// The kernel reports the end of a process's first thread only when the other threads have been reported, and waited
// for. So all tracees are waited for here too.
std::optional<Stop> PtraceTracer::wait(pid_t tid) {
  if (const auto early = early_.take(tid)) return early;
  for (;;) {
    int status = 0;
    pid_t stopped = waitpid(tid, &status, __WALL | WNOHANG);
    if (stopped < 0) return {};
    if (stopped == 0) stopped = waitpid(-1, &status, kAll);
    if (stopped <= 0) continue;  // a signal came
    const Stop stop = read_stop(calls_, timers_, stopped, status);
    if (stopped == tid) return stop;
    early_.add({stopped, stop});
  }
}

bool PtraceTracer::has_stopped(pid_t tid) {
  siginfo_t stop{};
  constexpr int kPeek = WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL;
  return early_.holds(tid) || waitid(P_PID, static_cast<id_t>(tid), &stop, kPeek) != 0 || stop.si_pid != 0;
}

Result<void> PtraceTracer::seize(pid_t tid) {
  if (redrive::seize(tid, options_of(calls_))) return {};
  return errno_error("cannot trace the program (see `redrive check --host`)");
}

void PtraceTracer::detach(pid_t tid, int signal) {
  timers_.erase(tid);
  redrive::detach(tid, signal);
}

bool PtraceTracer::set_option(pid_t tid, TraceeOption option) {
  constexpr long kSuspendFilters = 1 << 21;  // PTRACE_O_SUSPEND_SECCOMP
  const auto set = [&](long more) { return ptrace(PTRACE_SETOPTIONS, tid, nullptr, options_of(calls_) | more) == 0; };
  switch (option) {
    case TraceeOption::killed_with_tracer:
      return set(PTRACE_O_EXITKILL);
    case TraceeOption::reports_exit:
      return set(PTRACE_O_TRACEEXIT);
    case TraceeOption::ignores_filters:
    case TraceeOption::heeds_filters:
      if (calls_ == Calls::filtered) return true;  // redrive's own filter is the only one
      if (set(option == TraceeOption::ignores_filters ? kSuspendFilters : 0)) return true;
      return proc_status(tid).number("Seccomp") == 0;
  }
  return false;
}

std::optional<RseqArea> PtraceTracer::rseq(pid_t tid) { return rseq_area(tid); }

void PtraceTracer::resume(pid_t tid, Resume how, int signal) {
  // ESRCH: it was killed; waitpid reports it.
  redrive::resume(tid, request_of(how, calls_), signal);
}

void PtraceTracer::listen(pid_t tid) { ptrace(PTRACE_LISTEN, tid, nullptr, nullptr); }

bool PtraceTracer::interrupt(pid_t tid) { return redrive::interrupt(tid); }

bool PtraceTracer::get_regs(pid_t tid, user_regs_struct& regs) { return redrive::get_regs(tid, regs); }

bool PtraceTracer::set_regs(pid_t tid, const user_regs_struct& regs) { return redrive::set_regs(tid, regs); }

Bytes PtraceTracer::get_xstate(pid_t tid) { return redrive::get_xstate(tid); }

bool PtraceTracer::get_siginfo(pid_t tid, siginfo_t& info) { return redrive::get_siginfo(tid, info); }

bool PtraceTracer::set_siginfo(pid_t tid, const siginfo_t& info) { return redrive::set_siginfo(tid, info); }

bool PtraceTracer::get_signal_mask(pid_t tid, uint64_t& mask) { return redrive::get_signal_mask(tid, mask); }

bool PtraceTracer::set_signal_mask(pid_t tid, uint64_t mask) { return redrive::set_signal_mask(tid, mask); }

Result<Memory> PtraceTracer::open_memory(pid_t pid) { return Memory::open(pid); }

bool PtraceTracer::has_memory(pid_t tid) {
  char path[1];
  const std::string executable = proc_path(tid, "exe");
  return readlink(executable.c_str(), path, sizeof path) >= 0 || (errno != ENOENT && errno != ESRCH);
}

bool PtraceTracer::sees_tracer(pid_t pid) {
  struct stat info {};
  if (stat(proc_path(pid, "").c_str(), &info) != 0 || info.st_uid != geteuid() || info.st_gid != getegid())
    return false;
  const auto same = [&](const char* what) {
    struct stat ours {};
    struct stat theirs {};
    return stat(proc_path(getpid(), what).c_str(), &ours) == 0 && stat(proc_path(pid, what).c_str(), &theirs) == 0 &&
           ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
  };
  return same("ns/pid") && same("ns/mnt") && same("root");
}

SignalMasks PtraceTracer::signal_masks(pid_t tid) { return redrive::signal_masks(tid); }

bool PtraceTracer::send(pid_t pid, int signal) { return kill(pid, signal) == 0; }

bool PtraceTracer::send(pid_t pid, pid_t tid, int signal) { return syscall(SYS_tgkill, pid, tid, signal) == 0; }

Clock::time_point PtraceTracer::now() const { return Clock::now(); }

int64_t PtraceTracer::unix_ns() const {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<uint64_t> PtraceTracer::cpu_ns(pid_t pid) const {
  timespec now{};
  if (clock_gettime(cpu_clock_of(pid), &now) != 0) return {};
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void PtraceTracer::wake_within(std::chrono::microseconds time) { redrive::wake_within(time); }

bool PtraceTracer::wake_when_used(pid_t pid, std::chrono::nanoseconds cpu) {
  auto known = timers_.find(pid);
  if (known == timers_.end()) {
    auto made = CpuTimer::make(pid);
    if (!made) return false;
    known = timers_.emplace(pid, std::move(*made)).first;
  }
  return known->second.set(cpu);
}

}  // namespace redrive
