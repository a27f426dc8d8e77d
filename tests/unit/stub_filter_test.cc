#include "checkpoint/stub_filter.h"

#include <linux/audit.h>
#include <linux/futex.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <set>

#include "tests/unit/run_filter.h"

namespace redrive::stub_filter_test {

namespace {

constexpr Address kCall = 0x70000102, kElsewhere = 0x401000, kPage = 0x1000;
constexpr AddressRange kOwn{0x70000000, 0x70002000};
constexpr StubTier kTier{0x6f000100, {0x6f000000, 0x6f200000}, 0x6f001230};
using Args = std::array<uint64_t, 6>;

uint32_t answer(uint64_t ip, uint32_t number, const Args& args = {0x10000000, kPage}) {
  return run_filter(stub_filter(kCall, kOwn, kTier), AUDIT_ARCH_X86_64, number, ip, args);
}

constexpr uint32_t kMemoryCalls[] = {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_mremap};

}  // namespace

TEST_CASE("a stub's filter lets only calls on its own memory through") {
  for (const uint64_t ip : {kCall, kTier.call}) {
    std::set<uint32_t> passing;
    for (uint32_t number = 0; number < 600; ++number) {
      if (answer(ip, number) == SECCOMP_RET_ALLOW) passing.insert(number);
    }
    std::set<uint32_t> expected(std::begin(kMemoryCalls), std::end(kMemoryCalls));
    if (ip == kCall) {
      expected.insert({SYS_recvmsg, SYS_dup2, SYS_close, SYS_exit});
    } else {
      expected.insert({SYS_restart_syscall, SYS_sched_yield});
    }
    CHECK(passing == expected);
    CHECK_EQ(answer(ip, SYS_madvise, {0x10000000, kPage, MADV_DONTNEED}), SECCOMP_RET_ALLOW);
    CHECK_EQ(answer(ip, SYS_madvise, {0x10000000, kPage, MADV_HWPOISON}), SECCOMP_RET_TRACE);
    CHECK_EQ(answer(ip, SYS_madvise, {0x10000000, kPage, MADV_SOFT_OFFLINE}), SECCOMP_RET_TRACE);
  }
}

TEST_CASE("a stub's filter stops all calls that are made elsewhere") {
  for (const Address ip : {kCall - 2, kCall + (Address{1} << 32), kTier.call + 2, kElsewhere}) {
    for (uint32_t number = 0; number < 600; ++number) CHECK_EQ(answer(ip, number), SECCOMP_RET_TRACE);
  }
  const auto without_tier = stub_filter(kCall, kOwn, {});
  CHECK_EQ(run_filter(without_tier, AUDIT_ARCH_X86_64, SYS_mmap, kTier.call), SECCOMP_RET_TRACE);
  CHECK_EQ(run_filter(without_tier, AUDIT_ARCH_X86_64, SYS_mmap, kCall, {kTier.memory.start, kPage}),
           SECCOMP_RET_ALLOW);
  CHECK_EQ(answer(kElsewhere, 0x40000000), SECCOMP_RET_ERRNO | ENOSYS);
  CHECK_EQ(run_filter(stub_filter(kCall, kOwn, kTier), AUDIT_ARCH_I386, SYS_mmap, kCall), SECCOMP_RET_ERRNO | ENOSYS);
}

TEST_CASE("a stub's filter stops what would change its own mappings or the tier's") {
  struct Case {
    Address start;
    uint64_t length;
    bool touches;
  };
  std::vector<Case> cases{{0, ~0ull, true},
                          {kPage, 1ull << 32, true},
                          {kPage, 1ull << 31, true},
                          {1ull << 32, ~0ull, false},  // the kernel refuses it, because it wraps around
                          {(1ull << 32) + kTier.memory.start, kPage, false}};
  for (const AddressRange range : {kOwn, kTier.memory}) {
    cases.insert(cases.end(), {{range.start - kPage, kPage, false},
                               {range.start - kPage, kPage + 1, true},
                               {range.start, 1, true},
                               {range.end - 1, 1, true},
                               {range.end, kPage, false}});
  }
  for (const uint64_t ip : {kCall, kTier.call}) {
    for (const auto& [start, length, touches] : cases) {
      CAPTURE(start);
      CAPTURE(length);
      const uint32_t expected = touches ? SECCOMP_RET_TRACE : SECCOMP_RET_ALLOW;
      for (const uint32_t number : kMemoryCalls) CHECK_EQ(answer(ip, number, {start, length}), expected);
      CHECK_EQ(answer(ip, SYS_mremap, {0x10000000, kPage, length, MREMAP_FIXED | MREMAP_MAYMOVE, start}), expected);
    }
  }
}

TEST_CASE("a stub's filter lets the tier wait for a short time only") {
  const auto waits = [](uint64_t operation, uint64_t timeout) {
    return answer(kTier.call, SYS_futex, {0x10000000, operation, 0, timeout});
  };
  CHECK_EQ(waits(FUTEX_WAIT, kTier.patience), SECCOMP_RET_ALLOW);
  CHECK_EQ(waits(FUTEX_WAIT, 0), SECCOMP_RET_TRACE);
  CHECK_EQ(waits(FUTEX_WAIT, kTier.patience + (1ull << 32)), SECCOMP_RET_TRACE);
  CHECK_EQ(waits(FUTEX_WAIT, kElsewhere), SECCOMP_RET_TRACE);
  CHECK_EQ(waits(FUTEX_WAKE, 0), SECCOMP_RET_ALLOW);
  CHECK_EQ(waits(FUTEX_LOCK_PI, kTier.patience), SECCOMP_RET_TRACE);
  CHECK_EQ(waits(FUTEX_WAIT_BITSET, kTier.patience), SECCOMP_RET_TRACE);
}

}  // namespace redrive::stub_filter_test
