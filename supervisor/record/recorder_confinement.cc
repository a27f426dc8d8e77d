// What recorded programs forbid themselves by seccomp(2) and prctl(2). The recorder keeps their filters and applies
// them at the entry of each call that they may forbid, before anything else is done about it; what they always allow is
// served inside the program as ever. In replay the recorded results, signals and ends are all that is needed.
#include <linux/audit.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <sstream>

#include "base/brief_file.h"
#include "interceptors/program_filters.h"
#include "supervisor/record/recorder.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr size_t kMostInstructions = 32768;  // of all filters of a thread (kernel/seccomp.c, MAX_INSNS_PER_PATH)
constexpr uint64_t kKnownFlags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_LOG | SECCOMP_FILTER_FLAG_SPEC_ALLOW |
                                 SECCOMP_FILTER_FLAG_TSYNC_ESRCH;
constexpr int kSeccompCode = 1;                                      // sigaction(2), SYS_SECCOMP
constexpr uint64_t kModeNone = 0, kModeStrict = 1, kModeFilter = 2;  // prctl(2), PR_GET_SECCOMP

// The clocks that a vDSO reads (lib/vdso/gettimeofday.c).
bool is_vdso_clock(uint64_t clock) {
  constexpr uint32_t kClocks = 1u << CLOCK_REALTIME | 1u << CLOCK_MONOTONIC | 1u << CLOCK_MONOTONIC_RAW |
                               1u << CLOCK_REALTIME_COARSE | 1u << CLOCK_MONOTONIC_COARSE | 1u << CLOCK_BOOTTIME |
                               1u << CLOCK_TAI;
  return clock < 32 && (kClocks >> clock & 1);
}

// Whether the program would not have made the call without the recorder: it has no vDSO, and the kernel is told to
// enter a call again more often.
bool is_ours(const SyscallRow* row, const std::array<uint64_t, 6>& args) {
  if (!row) return false;
  if (row->number == SYS_restart_syscall) return true;
  return row->in_vdso && (row->args[0].kind != ArgKind::val || is_vdso_clock(args[0]));
}

bool is_allowed_in_strict_mode(uint64_t number) {
  return number == SYS_read || number == SYS_write || number == SYS_exit || number == SYS_rt_sigreturn;
}

// CAP_SYS_ADMIN in the thread's user namespace (proc_pid_status(5)).
bool may_administer(pid_t tid) {
  constexpr uint64_t kSysAdmin = 1 << 21;
  std::istringstream file(read_briefly("/proc/" + std::to_string(tid) + "/status"));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("CapEff:")) return std::strtoull(line.c_str() + 7, nullptr, 16) & kSysAdmin;
  }
  return false;
}

int64_t action_available(uint32_t action) {
  switch (action) {
    case SECCOMP_RET_KILL_PROCESS:
    case SECCOMP_RET_KILL_THREAD:
    case SECCOMP_RET_TRAP:
    case SECCOMP_RET_ERRNO:
    case SECCOMP_RET_TRACE:
    case SECCOMP_RET_LOG:
    case SECCOMP_RET_ALLOW:
      return 0;
    default:
      return -EOPNOTSUPP;
  }
}

}  // namespace

// The thread is at the entry of a call. True if its filters forbid it; then all is done, and nothing has been logged
// before.
bool Recorder::forbidden(Thread& thread) {
  const Confinement& its = thread.confinement;
  if ((!its.filters && !its.strict) || is_ours(thread.row, thread.args)) return false;
  const uint64_t number = thread.entry.orig_rax;
  if (its.strict) {
    if (is_allowed_in_strict_mode(number)) return false;
    end_forbidden(thread, SIGKILL, false);
    return true;
  }
  seccomp_data call{static_cast<int>(number), AUDIT_ARCH_X86_64, thread.entry.rip, {}};
  std::copy(thread.args.begin(), thread.args.end(), call.args);
  const uint32_t answer = its.filters->answer(call);
  const auto data = static_cast<uint16_t>(answer & SECCOMP_RET_DATA);
  switch (answer & SECCOMP_RET_ACTION_FULL) {
    case SECCOMP_RET_ALLOW:
    case SECCOMP_RET_LOG:
      return false;
    case SECCOMP_RET_ERRNO: {
      constexpr int64_t kLastErrno = 4095;
      answer_call(thread, -std::min<int64_t>(data, kLastErrno));
      return true;
    }
    case SECCOMP_RET_TRAP: {
      siginfo_t info{};
      info.si_signo = SIGSYS;
      info.si_code = kSeccompCode;
      info.si_errno = data;
      info.si_call_addr = reinterpret_cast<void*>(thread.entry.rip);
      info.si_syscall = static_cast<int>(number);
      info.si_arch = AUDIT_ARCH_X86_64;
      if (raise_caught(thread, info)) {
        answer_call(thread, static_cast<int64_t>(number));  // the handler finds the number there
      } else {
        end_forbidden(thread, SIGSYS, true);
      }
      return true;
    }
    // Nobody traces the program, or listens for its calls.
    case SECCOMP_RET_TRACE:
    case SECCOMP_RET_USER_NOTIF:
      answer_call(thread, -ENOSYS);
      return true;
    case SECCOMP_RET_KILL_THREAD:
      end_forbidden(thread, SIGSYS, false);
      return true;
    default:
      end_forbidden(thread, SIGSYS, true);
      return true;
  }
}

// A forbidden call ends the thread, or its whole process if that has no other.
void Recorder::end_forbidden(Thread& thread, int signal, bool whole_process) {
  Process& process = *thread.process;
  Event& entry = open_event(thread);
  const bool alone = process.threads == 1;
  if (whole_process || alone) {
    Event event;
    event.kind = EventKind::signal;
    event.thread = thread.serial;
    event.number = signal;
    event.ip = thread.entry.rip;
    event.args[0] = static_cast<uint64_t>(SignalPoint::anywhere);
    event.fatal = true;
    process.unit->log.add(std::move(event));
    process.end_logged = true;
    thread.run = Thread::Run::syscall;
  } else {
    entry.result = -ENOSYS;  // not the call's own end
  }
  if (signal == SIGKILL && alone) {
    tracer_.send(process.pid, SIGKILL);
    return;
  }
  // The kernel does it, by the filter that the recorder has installed.
  const ExactCall call = fatal_call(whole_process);
  user_regs_struct regs = thread.entry;
  regs.orig_rax = static_cast<uint64_t>(call.number);
  for (int i = 0; i < 6; ++i) syscall_arg(regs, i) = *call.args[static_cast<size_t>(i)];
  tracer_.set_regs(thread.tid, regs);
  if (whole_process || alone) {
    resume(thread, Resume::cont);
  } else {
    end_thread(thread, false);
  }
}

// Answers a call by which the thread asks or says what is forbidden.
void Recorder::confine(Thread& thread) {
  const auto& args = thread.args;
  Confinement& its = thread.confinement;
  const bool by_prctl = thread.row->number == SYS_prctl;
  int64_t result = -EINVAL;
  if (!by_prctl) {
    switch (args[0]) {
      case SECCOMP_SET_MODE_STRICT:
        if (!args[1] && !args[2]) result = set_strict(thread);
        break;
      case SECCOMP_SET_MODE_FILTER:
        result = add_filter(thread, args[1], args[2]);
        break;
      case SECCOMP_GET_ACTION_AVAIL: {
        uint32_t action = 0;
        const bool read = thread.process->memory.get(args[2], action);
        if (!args[1]) result = read ? action_available(action) : -EFAULT;
        break;
      }
      default:
        break;
    }
  } else {
    const bool rest_is_zero = !args[2] && !args[3] && !args[4];
    switch (args[0]) {
      case PR_GET_SECCOMP:
        result = its.filters ? kModeFilter : prctl(PR_GET_SECCOMP);  // as the recorder was started
        break;
      case PR_SET_SECCOMP:
        if (args[1] == kModeStrict) result = set_strict(thread);
        if (args[1] == kModeFilter) result = add_filter(thread, 0, args[2]);
        break;
      case PR_SET_NO_NEW_PRIVS:
        if (args[1] != 1 || !rest_is_zero) break;
        its.no_new_privileges = true;
        result = 0;
        break;
      case PR_GET_NO_NEW_PRIVS:
        if (!args[1] && rest_is_zero) result = its.no_new_privileges;
        break;
      default:
        break;
    }
  }
  answer_call(thread, result);
}

int64_t Recorder::set_strict(Thread& thread) {
  if (thread.confinement.filters) return -EINVAL;
  thread.confinement.strict = true;
  return 0;
}

// As seccomp(2) checks what it is given, in the same order.
int64_t Recorder::add_filter(Thread& thread, uint64_t flags, Address program) {
  constexpr uint64_t kListener = SECCOMP_FILTER_FLAG_NEW_LISTENER;
  const Memory& memory = thread.process->memory;
  sock_fprog header{};
  const bool has_program = memory.get(program, header);
  if (flags & ~kKnownFlags) {
    // Without a filter it only asks whether there are listeners, as libseccomp does.
    if (flags & kListener && has_program) count_refusal(thread, thread.row, EINVAL);
    return -EINVAL;
  }
  if (!has_program) return -EFAULT;
  if (header.len == 0 || header.len > BPF_MAXINSNS) return -EINVAL;
  Confinement& its = thread.confinement;
  if (!its.no_new_privileges && !may_administer(thread.tid)) return -EACCES;
  std::vector<sock_filter> instructions(header.len);
  const auto from = reinterpret_cast<Address>(header.filter);
  if (!from) return -EINVAL;
  if (!memory.read(from, instructions.data(), instructions.size() * sizeof(sock_filter))) return -EFAULT;
  if (!is_valid_filter(instructions)) return -EINVAL;
  auto filters = std::make_shared<const ProgramFilters>(std::move(instructions), its.filters);
  if (filters->instructions() > kMostInstructions) return -ENOMEM;
  if (flags & SECCOMP_FILTER_FLAG_TSYNC) {
    const auto others = [&](const std::function<void(Thread&)>& visit) {
      for (const auto& [serial, other] : thread.process->unit->threads) {
        if (other != &thread && other->process == thread.process && !other->exited) visit(*other);
      }
    };
    int64_t in_the_way = 0;
    others([&](Thread& other) {
      const Confinement& has = other.confinement;
      const bool can = !has.strict && (!has.filters || (its.filters && its.filters->descends_from(has.filters.get())));
      if (!can) in_the_way = other.tid;
    });
    if (in_the_way) return flags & SECCOMP_FILTER_FLAG_TSYNC_ESRCH ? -ESRCH : in_the_way;
    others([&](Thread& other) {
      other.confinement.filters = filters;
      other.confinement.no_new_privileges |= its.no_new_privileges;
    });
  }
  its.filters = std::move(filters);
  return 0;
}

}  // namespace redrive
