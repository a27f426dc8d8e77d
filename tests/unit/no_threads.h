// A thread that can make no other, as where there are as many as its user may have.
#pragma once

#include <seccomp.h>

#include <cerrno>

#include "tests/unit/unit_test.h"

namespace redrive {

// From now on the calling thread, and no other one, fails to make threads and processes.
inline void make_no_threads() {
  const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  REQUIRE(filter);
  for (const int call : {SCMP_SYS(clone), SCMP_SYS(clone3), SCMP_SYS(fork)}) {
    REQUIRE_EQ(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EAGAIN), call, 0), 0);
  }
  REQUIRE_EQ(seccomp_load(filter), 0);
  seccomp_release(filter);
}

}  // namespace redrive
