#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/seccomp.h>

#include <cerrno>
#include <cstddef>
#include <initializer_list>
#include <iterator>

#include "interceptors/syscall_table.h"

namespace redrive {

std::vector<sock_filter> seccomp_filter(std::initializer_list<uint64_t> untraced, uint64_t traced) {
  constexpr uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS;
  constexpr uint32_t kForeign = SECCOMP_RET_ERRNO | ENOSYS;
  std::vector<sock_filter> filter{
      BPF_STMT(kLoad, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, kForeign),
  };
  const auto answer_at = [&](uint64_t address, uint32_t answer) {
    constexpr uint32_t kAddress = offsetof(seccomp_data, instruction_pointer);
    const sock_filter test[] = {
        BPF_STMT(kLoad, kAddress),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(address), 0, 3),
        BPF_STMT(kLoad, kAddress + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(address >> 32), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
    };
    filter.insert(filter.end(), std::begin(test), std::end(test));
  };
  for (const uint64_t address : untraced) answer_at(address, SECCOMP_RET_ALLOW);
  if (traced) answer_at(traced, SECCOMP_RET_TRACE);
  const sock_filter rest[] = {
      BPF_STMT(kLoad, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, __X32_SYSCALL_BIT, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, kForeign),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
  };
  filter.insert(filter.end(), std::begin(rest), std::end(rest));
  return filter;
}

}  // namespace redrive
