#include "checkpoint/stub_filter.h"

#include <linux/audit.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "tests/unit/run_filter.h"

using namespace redrive;

namespace {

constexpr Address kStub = 0x70000102, kTier = 0x6f000100;

uint32_t answer(uint64_t ip, uint32_t number, uint64_t advice = 0) {
  return run_filter(stub_filter(kStub, kTier), AUDIT_ARCH_X86_64, number, ip, {0, 0, advice, 0, 0, 0});
}

}  // namespace

TEST_CASE("a stub's filter lets only calls on its own memory through") {
  for (const uint64_t ip : {kStub, kTier}) {
    for (const uint32_t number : {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap}) {
      CHECK_EQ(answer(ip, number), SECCOMP_RET_ALLOW);
    }
    CHECK_EQ(answer(ip, SYS_madvise, MADV_DONTNEED), SECCOMP_RET_ALLOW);
    CHECK_EQ(answer(ip, SYS_madvise, MADV_HWPOISON), SECCOMP_RET_TRACE);
    for (uint32_t number = 0; number < 600; ++number) {
      if (answer(ip, number, ~0ull) == SECCOMP_RET_TRACE) continue;
      const bool known =
          number == SYS_mmap || number == SYS_munmap || number == SYS_mprotect || number == SYS_mremap ||
          (ip == kStub ? number == SYS_recvmsg || number == SYS_dup2 || number == SYS_close || number == SYS_exit
                       : number == SYS_futex || number == SYS_restart_syscall);
      CHECK_MESSAGE(known, number);
    }
  }
}

TEST_CASE("a stub's filter stops all calls that are made elsewhere") {
  for (const Address ip : {kStub - 2, kStub + (Address{1} << 32), kTier + 2, Address{0x401000}}) {
    for (uint32_t number = 0; number < 600; ++number) CHECK_EQ(answer(ip, number), SECCOMP_RET_TRACE);
  }
  CHECK_EQ(run_filter(stub_filter(kStub, 0), AUDIT_ARCH_X86_64, SYS_mmap, kTier), SECCOMP_RET_TRACE);
  CHECK_EQ(answer(0x401000, 0x40000000), SECCOMP_RET_ERRNO | ENOSYS);
  CHECK_EQ(run_filter(stub_filter(kStub, kTier), AUDIT_ARCH_I386, SYS_mmap, kStub), SECCOMP_RET_ERRNO | ENOSYS);
}
