#include "checkpoint/stub_filter.h"

#include <linux/audit.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/assert.h"
#include "base/filter_program.h"

namespace redrive {
namespace {

// Jumps to `place` if the memory that two arguments describe (start and length) overlaps the range, which lies below 2
// GiB.
void if_overlaps(FilterProgram& program, int start, int length, AddressRange range, FilterProgram::Place& place) {
  constexpr uint32_t kTooLong = 1u << 31;
  ASSERT(range.end <= kTooLong);
  FilterProgram::Place apart;
  program.load_high(start);
  program.if_not_equal(0, apart);
  program.load_low(start);
  program.if_at_least(static_cast<uint32_t>(range.end), apart);
  program.load_high(length);
  program.if_not_equal(0, place);
  program.load_low(length);
  program.if_at_least(kTooLong, place);
  program.add_to_next();
  program.load_low(start);
  program.add_it();
  program.if_more(static_cast<uint32_t>(range.start), place);
  program.here(apart);
}

}  // namespace

std::vector<sock_filter> stub_filter(Address call, AddressRange memory, const StubTier& tier) {
  constexpr uint32_t kForeign = SECCOMP_RET_ERRNO | ENOSYS;
  // Advice with higher numbers takes memory away from the whole machine (madvise(2), MADV_HWPOISON and
  // MADV_SOFT_OFFLINE).
  constexpr uint32_t kMostAdvice = 31;
  constexpr size_t kAddress = offsetof(seccomp_data, instruction_pointer);
  ASSERT(call <= UINT32_MAX && tier.call <= UINT32_MAX && tier.patience <= UINT32_MAX);
  FilterProgram program;
  FilterProgram::Place foreign, elsewhere, at_tier, changes_memory, allow, stop;
  program.load(offsetof(seccomp_data, arch));
  program.if_not_equal(AUDIT_ARCH_X86_64, foreign);
  program.load_number();
  program.if_any_bit(__X32_SYSCALL_BIT, foreign);
  program.load(kAddress + 4);
  program.if_not_equal(0, stop);
  program.load(kAddress);
  if (tier.call) program.if_equal(static_cast<uint32_t>(tier.call), at_tier);
  program.if_not_equal(static_cast<uint32_t>(call), stop);

  // A descriptor is received, mapped and closed. The socket does not block.
  program.load_number();
  for (const uint32_t number : {SYS_recvmsg, SYS_dup2, SYS_close, SYS_exit}) program.if_equal(number, allow);
  for (const uint32_t number : {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_mremap})
    program.if_equal(number, changes_memory);
  program.answer(SECCOMP_RET_TRACE);

  program.here(at_tier);
  if (tier.call) {
    FilterProgram::Place waits;
    program.load_number();
    program.if_equal(SYS_restart_syscall, allow);  // continues a futex(2) that was interrupted
    program.if_equal(SYS_sched_yield, allow);
    for (const uint32_t number : {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_mremap})
      program.if_equal(number, changes_memory);
    program.if_not_equal(SYS_futex, stop);
    program.load_low(1);
    program.if_equal(FUTEX_WAKE, allow);
    program.if_not_equal(FUTEX_WAIT, stop);
    program.load_high(3);
    program.if_not_equal(0, stop);
    program.load_low(3);
    program.if_equal(static_cast<uint32_t>(tier.patience), allow);
    program.answer(SECCOMP_RET_TRACE);
  }

  program.here(changes_memory);
  FilterProgram::Place remaps, advises;
  if_overlaps(program, 0, 1, memory, stop);
  if (tier.call) if_overlaps(program, 0, 1, tier.memory, stop);
  program.load_number();
  program.if_equal(SYS_mremap, remaps);
  program.if_equal(SYS_madvise, advises);
  program.answer(SECCOMP_RET_ALLOW);
  program.here(remaps);
  if_overlaps(program, 4, 2, memory, stop);
  if (tier.call) if_overlaps(program, 4, 2, tier.memory, stop);
  program.answer(SECCOMP_RET_ALLOW);
  program.here(advises);
  program.load_low(2);
  program.if_more(kMostAdvice, stop);

  program.here(allow);
  program.answer(SECCOMP_RET_ALLOW);
  program.here(stop);
  program.answer(SECCOMP_RET_TRACE);
  program.here(foreign);
  program.answer(kForeign);
  return std::move(program).take();
}

}  // namespace redrive
