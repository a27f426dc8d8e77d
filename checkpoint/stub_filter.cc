#include "checkpoint/stub_filter.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <span>

namespace redrive {
namespace {

// A call of which only some bits of the low half of an argument may be set.
struct LimitedCall {
  uint32_t number;
  uint8_t arg = 0;
  uint32_t bits = ~0u;
};

// Advice beyond these takes memory from the whole machine (madvise(2), MADV_HWPOISON and MADV_SOFT_OFFLINE).
constexpr LimitedCall kAdvise{SYS_madvise, 2, 31};

// A descriptor is received, mapped and closed. The socket does not block.
constexpr LimitedCall kOfStub[] = {
    {SYS_recvmsg}, {SYS_dup2}, {SYS_close}, {SYS_mmap}, {SYS_munmap}, {SYS_mprotect}, kAdvise, {SYS_mremap}, {SYS_exit},
};
constexpr LimitedCall kOfTier[] = {
    {SYS_mmap},   {SYS_munmap}, {SYS_mprotect},        kAdvise,
    {SYS_mremap}, {SYS_futex},  {SYS_restart_syscall},  // of a futex(2) that was interrupted
};

constexpr uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr uint32_t kForeign = SECCOMP_RET_ERRNO | ENOSYS;

void allow_at(std::vector<sock_filter>& filter, Address behind, std::span<const LimitedCall> calls) {
  constexpr uint32_t kAddress = offsetof(seccomp_data, instruction_pointer);
  constexpr size_t kEach = 5;
  const auto size = static_cast<uint8_t>(calls.size() * kEach + 1);
  filter.insert(filter.end(), {
                                  BPF_STMT(kLoad, kAddress),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(behind), 0,
                                           static_cast<uint8_t>(size + 2)),
                                  BPF_STMT(kLoad, kAddress + 4),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(behind >> 32), 0, size),
                              });
  for (const LimitedCall& call : calls) {
    const auto argument = static_cast<uint32_t>(offsetof(seccomp_data, args) + call.arg * sizeof(uint64_t));
    const sock_filter test[kEach] = {
        BPF_STMT(kLoad, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.number, 0, 3),
        BPF_STMT(kLoad, argument),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, ~call.bits, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    filter.insert(filter.end(), std::begin(test), std::end(test));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
}

}  // namespace

std::vector<sock_filter> stub_filter(Address stub, Address tier) {
  std::vector<sock_filter> filter{
      BPF_STMT(kLoad, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, kForeign),
  };
  allow_at(filter, stub, kOfStub);
  if (tier) allow_at(filter, tier, kOfTier);
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
