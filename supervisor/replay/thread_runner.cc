#include "supervisor/replay/thread_runner.h"

#include <sys/wait.h>

#include <cerrno>
#include <utility>

#include "supervisor/replay/divergence.h"
#include "supervisor/replay/probe.h"
#include "supervisor/tier/registers.h"
#include "supervisor/tier/stepping.h"

namespace redrive {
namespace {

constexpr int kSyscallStop = SIGTRAP | 0x80;

}  // namespace

ThreadStop ThreadRunner::run(RedrivenThread& thread, const Probe* awaited) {
  if (thread.ahead) return *std::exchange(thread.ahead, std::nullopt);
  ++stops_;
  const Gate* const gate = gates_.of(thread);
  for (;;) {
    // With the tier a seccomp filter stops the program's calls, but not those of the code inside it.
    const auto how = static_cast<__ptrace_request>(gate ? PTRACE_CONT : PTRACE_SYSEMU);
    if (!resume(thread.tid, how)) return ThreadStop::gone;
    int status = 0;
    if (!wait_for(thread.tid, status) || !WIFSTOPPED(status)) {
      killed_ |= WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      return ThreadStop::gone;
    }
    const bool filtered = status >> 16 == PTRACE_EVENT_SECCOMP;
    if (status >> 16 && !filtered) continue;
    const int signal = WSTOPSIG(status);
    if (filtered || signal == kSyscallStop) {
      if (!get_regs(thread.tid, thread.regs)) return ThreadStop::gone;
      // However the thread continues, the kernel makes no call.
      if (filtered && !skip_call(thread.tid)) return ThreadStop::gone;
      thread.regs.orig_rax = call_number(thread.regs);
      if (gate) gate->make_canonical(thread.regs);
      thread.stopped_at_syscall = true;
      return ThreadStop::syscall;
    }
    siginfo_t info{};
    get_siginfo(thread.tid, info);
    // Anything that no instruction caused comes from outside (a terminal's Ctrl-C) and is not the program's.
    const bool own = caused_by_instruction(info);
    if (!own && (signal != SIGXCPU || !is_overdue(thread, awaited))) continue;
    if (!get_regs(thread.tid, thread.regs)) return ThreadStop::gone;
    if (own && gate && gate->executes_at(thread.regs.rip)) {
      // An argument of a call that would have been answered: the call is left to a stop.
      if (!gates_.leave(thread, thread.regs)) return ThreadStop::gone;
      continue;
    }
    if (gate) gate->make_canonical(thread.regs);
    thread.fault_signal = info.si_signo;
    return own ? ThreadStop::fault : ThreadStop::overdue;
  }
}

bool ThreadRunner::step(RedrivenThread& thread, const InstructionAt& instruction) {
  if (instruction.kind != InstructionKind::repeated) return run_to_trap(thread, PTRACE_SINGLESTEP);
  return run_past(
      unit_.memory(thread), thread.regs.rip + instruction.size, thread.regs,
      [&] { return run_to_trap(thread, PTRACE_CONT); }, [](const user_regs_struct&) { return true; },
      [&](const user_regs_struct& regs) { return set_regs(thread.tid, regs); });
}

// Resumes the thread like that; signals from outside do not stop it. False if it was not a trap that has.
bool ThreadRunner::run_to_trap(RedrivenThread& thread, __ptrace_request how) {
  for (;;) {
    int status = 0;
    if (!resume(thread.tid, how) || !wait_for(thread.tid, status) || !WIFSTOPPED(status)) {
      killed_ |= WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      return false;
    }
    if (WSTOPSIG(status) == SIGTRAP) return get_regs(thread.tid, thread.regs);
    siginfo_t info{};
    if (!get_siginfo(thread.tid, info) || caused_by_instruction(info)) return false;
  }
}

bool ThreadRunner::refuse_foreign(RedrivenThread& thread) const {
  if (gates_.of(thread) || !is_foreign_call(thread.regs, unit_.memory(thread))) return false;
  thread.regs.rax = static_cast<uint64_t>(-ENOSYS);
  thread.regs.orig_rax = ~0ull;
  thread.stopped_at_syscall = false;
  return set_regs(thread.tid, thread.regs);
}

ThreadStop ThreadRunner::run_ahead(RedrivenThread& thread) {
  const ThreadStop stop = run(thread);
  thread.ahead = stop;
  return stop;
}

// At a tick of the thread's stub: whether it takes too long to come to what is awaited.
bool ThreadRunner::is_overdue(const RedrivenThread& thread, const Probe* awaited) {
  const uint64_t now_ns = unit_.stub(thread.process).cpu_time_ns();
  const bool over = patience_.is_over(thread.process, stops_, now_ns);
  return over || (awaited && !awaited->intact());
}

void ThreadRunner::begin_search(const RedrivenThread& thread) {
  patience_.begin_search(thread.process, unit_.stub(thread.process).cpu_time_ns());
}

// Which memory the thread that is stopped at a fault could not access, if that is known.
std::string faulting_access(pid_t tid) {
  siginfo_t info{};
  const bool known = get_siginfo(tid, info) && info.si_signo == SIGSEGV &&
                     (info.si_code == SEGV_MAPERR || info.si_code == SEGV_ACCERR);
  return known ? ", which accesses " + hex(reinterpret_cast<Address>(info.si_addr)) : "";
}

std::string ThreadRunner::came_to(const RedrivenThread& thread, ThreadStop stop) const {
  switch (stop) {
    case ThreadStop::syscall:
      return "a system call at " + hex(thread.regs.rip);
    case ThreadStop::fault:
      return "a fault at " + hex(thread.regs.rip) + faulting_access(thread.tid);
    case ThreadStop::gone:
      return "the process ended";
    case ThreadStop::overdue:
      break;
  }
  return "neither a system call nor a fault within " + patience();
}

}  // namespace redrive
