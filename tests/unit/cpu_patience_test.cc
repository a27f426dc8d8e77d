// When a re-driven process has gone on for too long without coming to what is awaited.
#include "supervisor/replay/cpu_patience.h"

#include "tests/unit/unit_test.h"

namespace redrive::cpu_patience_test {

namespace {

constexpr uint64_t kS = 1'000'000'000;

}  // namespace

TEST_CASE("cpu patience: 10 s, and 100 times what was recorded, from the first tick after a stop") {
  CpuPatience patience(2 * kS);
  CHECK_FALSE(patience.is_over(0, 1, 5 * kS));
  CHECK_FALSE(patience.is_over(0, 1, 215 * kS));
  CHECK(patience.is_over(0, 1, 215 * kS + 1));
  CHECK_EQ(patience.text(), "210 s of CPU time (2.000 s when recorded)");
}

TEST_CASE("cpu patience: a stop begins it again, and so does another process") {
  CpuPatience patience(0);
  CHECK_FALSE(patience.is_over(0, 1, 0));
  CHECK_FALSE(patience.is_over(0, 2, 11 * kS));
  CHECK_FALSE(patience.is_over(0, 2, 21 * kS));
  CHECK_FALSE(patience.is_over(1, 2, 90 * kS));
  CHECK_FALSE(patience.is_over(1, 2, 100 * kS));
  CHECK(patience.is_over(1, 2, 100 * kS + 1));
}

TEST_CASE("cpu patience: in a search stops do not count") {
  CpuPatience patience(0);
  CHECK_FALSE(patience.is_over(0, 1, 0));
  patience.begin_search(0, 50 * kS);
  CHECK_FALSE(patience.is_over(0, 2, 60 * kS));
  CHECK(patience.is_over(0, 3, 60 * kS + 1));
  patience.end_search();
  CHECK_FALSE(patience.is_over(0, 3, 70 * kS));
  CHECK_FALSE(patience.is_over(0, 3, 80 * kS));
  CHECK(patience.is_over(0, 3, 80 * kS + 1));
}

}  // namespace redrive::cpu_patience_test
