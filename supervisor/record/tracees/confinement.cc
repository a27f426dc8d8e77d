#include "supervisor/record/tracees/confinement.h"

#include <linux/audit.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/brief_file.h"
#include "base/procfs.h"

namespace redrive {
namespace {

constexpr size_t kMostInstructions = 32768;  // of all filters of a thread (kernel/seccomp.c, MAX_INSNS_PER_PATH)
constexpr uint64_t kKnownFlags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_LOG | SECCOMP_FILTER_FLAG_SPEC_ALLOW |
                                 SECCOMP_FILTER_FLAG_TSYNC_ESRCH;
constexpr int kSeccompCode = 1;                                      // sigaction(2), SYS_SECCOMP
constexpr uint64_t kModeNone = 0, kModeStrict = 1, kModeFilter = 2;  // prctl(2), PR_GET_SECCOMP

using Words = std::array<uint64_t, gate::kCallWords>;
constexpr Words kNoCalls{};
constexpr Words kAllCalls = [] {
  Words words{};
  words.fill(~0ull);
  return words;
}();

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
  return proc_status(tid).number("CapEff", 16) & kSysAdmin;
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

siginfo_t trap_of(const Confinement::Call& call, uint16_t data) {
  siginfo_t info{};
  info.si_signo = SIGSYS;
  info.si_code = kSeccompCode;
  info.si_errno = data;
  info.si_call_addr = reinterpret_cast<void*>(call.ip);
  info.si_syscall = static_cast<int>(call.number);
  info.si_arch = AUDIT_ARCH_X86_64;
  return info;
}

}  // namespace

const Words& Confinement::restricted() const {
  if (filters_) return filters_->restricted();
  return strict_ ? kAllCalls : kNoCalls;
}

Confinement::Verdict Confinement::judge_confined(const Call& call) const {
  if (is_ours(call.row, call.args)) return Allowed{};
  if (strict_) {
    if (is_allowed_in_strict_mode(call.number)) return Allowed{};
    return Fatal{SIGKILL, false};
  }
  seccomp_data data{static_cast<int>(call.number), AUDIT_ARCH_X86_64, call.ip, {}};
  std::copy(call.args.begin(), call.args.end(), data.args);
  const uint32_t answer = filters_->answer(data);
  const auto value = static_cast<uint16_t>(answer & SECCOMP_RET_DATA);
  switch (answer & SECCOMP_RET_ACTION_FULL) {
    case SECCOMP_RET_ALLOW:
    case SECCOMP_RET_LOG:
      return Allowed{};
    case SECCOMP_RET_ERRNO: {
      constexpr int64_t kLastErrno = 4095;
      return Answered{-std::min<int64_t>(value, kLastErrno)};
    }
    case SECCOMP_RET_TRAP:
      return Trapped{trap_of(call, value), static_cast<int64_t>(call.number)};  // the handler finds the number there
    // As if there were neither a tracer of the program nor a listener for its calls.
    case SECCOMP_RET_TRACE:
    case SECCOMP_RET_USER_NOTIF:
      return Answered{-ENOSYS};
    case SECCOMP_RET_KILL_THREAD:
      return Fatal{SIGSYS, false};
    default:
      return Fatal{SIGSYS, true};
  }
}

Confinement::Reply Confinement::answer(const Call& call, const Caller& caller) {
  return call.row->number == SYS_prctl ? answer_prctl(call, caller) : answer_seccomp(call, caller);
}

Confinement::Reply Confinement::answer_seccomp(const Call& call, const Caller& caller) {
  const auto& args = call.args;
  switch (args[0]) {
    case SECCOMP_SET_MODE_STRICT:
      if (!args[1] && !args[2]) return {set_strict()};
      break;
    case SECCOMP_SET_MODE_FILTER:
      return add_filter(caller, args[1], args[2]);
    case SECCOMP_GET_ACTION_AVAIL: {
      uint32_t action = 0;
      const bool read = caller.memory.get(args[2], action);
      if (!args[1]) return {read ? action_available(action) : -EFAULT};
      break;
    }
    default:
      break;
  }
  return {-EINVAL};
}

Confinement::Reply Confinement::answer_prctl(const Call& call, const Caller& caller) {
  const auto& args = call.args;
  const bool rest_is_zero = !args[2] && !args[3] && !args[4];
  switch (args[0]) {
    case PR_GET_SECCOMP:
      return {filters_ ? static_cast<int64_t>(kModeFilter) : prctl(PR_GET_SECCOMP)};  // as the recorder was started
    case PR_SET_SECCOMP:
      if (args[1] == kModeStrict) return {set_strict()};
      if (args[1] == kModeFilter) return add_filter(caller, 0, args[2]);
      break;
    case PR_SET_NO_NEW_PRIVS:
      if (args[1] != 1 || !rest_is_zero) break;
      no_new_privileges_ = true;
      return {0};
    case PR_GET_NO_NEW_PRIVS:
      if (!args[1] && rest_is_zero) return {no_new_privileges_};
      break;
    default:
      break;
  }
  return {-EINVAL};
}

int64_t Confinement::set_strict() {
  if (filters_) return -EINVAL;
  strict_ = true;
  return 0;
}

// Checks what it is given as seccomp(2) does, in the same order.
Confinement::Reply Confinement::add_filter(const Caller& caller, uint64_t flags, Address program) {
  constexpr uint64_t kListener = SECCOMP_FILTER_FLAG_NEW_LISTENER;
  sock_fprog header{};
  const bool has_program = caller.memory.get(program, header);
  // Without a filter it only asks whether there are listeners, as libseccomp does.
  if (flags & ~kKnownFlags) return {-EINVAL, flags & kListener && has_program};
  if (!has_program) return {-EFAULT};
  if (header.len == 0 || header.len > BPF_MAXINSNS) return {-EINVAL};
  if (!no_new_privileges_ && !may_administer(caller.tid)) return {-EACCES};
  std::vector<sock_filter> instructions(header.len);
  const auto from = reinterpret_cast<Address>(header.filter);
  if (!from) return {-EINVAL};
  if (!caller.memory.read(from, instructions.data(), instructions.size() * sizeof(sock_filter))) return {-EFAULT};
  if (!is_valid_filter(instructions)) return {-EINVAL};
  auto filters = std::make_shared<const ProgramFilters>(std::move(instructions), filters_);
  if (filters->instructions() > kMostInstructions) return {-ENOMEM};
  if (flags & SECCOMP_FILTER_FLAG_TSYNC) {
    const int64_t given = give_to(caller.others, filters, flags & SECCOMP_FILTER_FLAG_TSYNC_ESRCH);
    if (given != 0) return {given};
  }
  filters_ = std::move(filters);
  return {0};
}

// Gives the filters to all of the others, if each has only filters that this thread has. Otherwise gives them to none,
// and returns the number of one that has other filters, or ESRCH if `as_error`.
int64_t Confinement::give_to(std::span<const Other> others, const std::shared_ptr<const ProgramFilters>& filters,
                             bool as_error) {
  int64_t in_the_way = 0;
  for (const Other& other : others) {
    const Confinement& its = *other.confinement;
    const bool can = !its.strict_ && (!its.filters_ || (filters_ && filters_->descends_from(its.filters_.get())));
    if (!can) in_the_way = other.tid;
  }
  if (in_the_way) return as_error ? -ESRCH : in_the_way;
  for (const Other& other : others) {
    other.confinement->filters_ = filters;
    other.confinement->no_new_privileges_ |= no_new_privileges_;
  }
  return 0;
}

}  // namespace redrive
