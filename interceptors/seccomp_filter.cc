#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/seccomp.h>

#include <cerrno>
#include <cstddef>
#include <iterator>

#include "base/filter_rules.h"
#include "interceptors/syscall_table.h"

namespace redrive {

namespace {

constexpr uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr uint32_t kForeign = SECCOMP_RET_ERRNO | ENOSYS;

void append(std::vector<sock_filter>& filter, std::span<const sock_filter> more) {
  filter.insert(filter.end(), more.begin(), more.end());
}

// Appends the answer to calls that are made at this address.
void append_at(std::vector<sock_filter>& filter, uint64_t address, std::span<const sock_filter> answer) {
  constexpr uint32_t kAddress = offsetof(seccomp_data, instruction_pointer);
  const auto size = static_cast<uint32_t>(answer.size());
  const sock_filter test[] = {
      BPF_STMT(kLoad, kAddress),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(address), 1, 0),
      BPF_STMT(BPF_JMP | BPF_JA, size + 3),
      BPF_STMT(kLoad, kAddress + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(address >> 32), 1, 0),
      BPF_STMT(BPF_JMP | BPF_JA, size),
  };
  append(filter, test);
  append(filter, answer);
}

}  // namespace

ExactCall fatal_call(bool whole_process) {
  constexpr uint64_t kMark = 0x6c61746166;  // in arguments that getpid(2) does not have
  return {__NR_getpid,
          {kMark, kMark, kMark, kMark, kMark, whole_process},
          whole_process ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_KILL_THREAD};
}

Result<std::vector<sock_filter>> seccomp_filter(std::span<const UntracedSite> untraced, uint64_t traced,
                                                std::span<const ExactCall> calls) {
  const sock_filter trace = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
  std::vector<sock_filter> filter;
  for (const auto& [address, numbers] : untraced) {
    FilterRules rules(SECCOMP_RET_TRACE, kForeign);
    for (const int number : numbers) rules.add(SECCOMP_RET_ALLOW, number);
    ASSIGN_OR_RETURN(const auto answer, rules.program());
    append_at(filter, address, answer);
  }
  const sock_filter same_architecture[] = {
      BPF_STMT(kLoad, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, kForeign),
  };
  append(filter, same_architecture);
  if (traced) append_at(filter, traced, {&trace, 1});
  // By the bit: libseccomp takes all large numbers for those of x32, except -1.
  const sock_filter not_x32[] = {
      BPF_STMT(kLoad, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, __X32_SYSCALL_BIT, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, kForeign),
  };
  append(filter, not_x32);
  FilterRules rules(SECCOMP_RET_TRACE, SECCOMP_RET_TRACE);
  for (const auto& call : calls) {
    std::vector<scmp_arg_cmp> same;
    for (unsigned i = 0; i < call.args.size(); ++i) {
      if (call.args[i]) same.push_back({i, SCMP_CMP_EQ, *call.args[i], 0});
    }
    rules.add(call.answer, call.number, same);
  }
  ASSIGN_OR_RETURN(const auto answer, rules.program());
  append(filter, answer);
  return filter;
}

}  // namespace redrive
