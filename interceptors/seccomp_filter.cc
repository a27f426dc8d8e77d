#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/seccomp.h>

#include <cerrno>
#include <cstddef>

#include "interceptors/syscall_table.h"

namespace redrive {

std::vector<sock_filter> seccomp_filter() {
  constexpr uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS;
  constexpr uint32_t kForeign = SECCOMP_RET_ERRNO | ENOSYS;
  return {
      BPF_STMT(kLoad, offsetof(seccomp_data, arch)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 3),
      BPF_STMT(kLoad, offsetof(seccomp_data, nr)),   BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, __X32_SYSCALL_BIT, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),  BPF_STMT(BPF_RET | BPF_K, kForeign),
  };
}

}  // namespace redrive
