#include "base/filter_rules.h"

#include <linux/audit.h>
#include <sys/syscall.h>

#include "tests/unit/run_filter.h"

namespace redrive::filter_rules_test {

namespace {

constexpr uint32_t kForeign = SECCOMP_RET_ERRNO | 7;

uint32_t answer(const FilterRules& rules, uint32_t number, const std::array<uint64_t, 6>& args = {},
                uint32_t arch = AUDIT_ARCH_X86_64) {
  return run_filter(rules.program().value(), arch, number, 0, args);
}

}  // namespace

TEST_CASE("filter rules answer by number and arguments") {
  constexpr uint64_t kWide = 0x123456789abcdef0;
  FilterRules rules(SECCOMP_RET_TRACE, kForeign);
  rules.add(SECCOMP_RET_ALLOW, SYS_close);
  rules.add(SECCOMP_RET_ALLOW, SYS_write, {{0, SCMP_CMP_EQ, kWide, 0}, {2, SCMP_CMP_MASKED_EQ, 6, 4}});
  rules.add(SECCOMP_RET_KILL_PROCESS, SYS_write, {{0, SCMP_CMP_EQ, kWide + 1, 0}});
  CHECK_EQ(answer(rules, SYS_close, {1, 2, 3}), SECCOMP_RET_ALLOW);
  CHECK_EQ(answer(rules, SYS_read), SECCOMP_RET_TRACE);
  CHECK_EQ(answer(rules, 100'000), SECCOMP_RET_TRACE);
  for (const uint64_t mask : {4, 5, 12}) CHECK_EQ(answer(rules, SYS_write, {kWide, 0, mask}), SECCOMP_RET_ALLOW);
  for (const uint64_t mask : {0, 2, 6}) CHECK_EQ(answer(rules, SYS_write, {kWide, 0, mask}), SECCOMP_RET_TRACE);
  CHECK_EQ(answer(rules, SYS_write, {kWide + 1}), SECCOMP_RET_KILL_PROCESS);
  CHECK_EQ(answer(rules, SYS_write, {kWide ^ 1ull << 40, 0, 4}), SECCOMP_RET_TRACE);
  CHECK_EQ(answer(rules, SYS_close, {}, AUDIT_ARCH_I386), kForeign);
  CHECK_EQ(answer(rules, SYS_close | __X32_SYSCALL_BIT), kForeign);
}

TEST_CASE("filter rules that cannot be make no program") {
  FilterRules rules(SECCOMP_RET_TRACE, kForeign);
  rules.add(SECCOMP_RET_TRACE, SYS_close);  // all calls have this answer
  rules.add(SECCOMP_RET_ALLOW, SYS_read);
  const auto program = rules.program();
  REQUIRE_FALSE(program);
  CHECK_EQ(program.error().message, "cannot make a seccomp filter: Permission denied");
}

}  // namespace redrive::filter_rules_test
