// What follows from a bound, and which bounds cannot be kept.
#include "supervisor/plan/tuning.h"

#include "tests/unit/unit_test.h"

namespace redrive::tuning_test {

namespace {

void check_refused(const TuningRequest& wanted, double bound_s, double restore_s) {
  CAPTURE(bound_s);
  CAPTURE(restore_s);
  const auto tuning = tune(wanted, bound_s, restore_s);
  REQUIRE_FALSE(tuning);
  CHECK_EQ(tuning.error().status, Status::usage);
  CHECK_NE(tuning.error().message.find("cannot be kept"), std::string::npos);
}

}  // namespace

TEST_CASE("C and T are parts of what a bound leaves beside restores") {
  const auto tuning = tune({TuningRule::promise, true}, 10, 1);
  REQUIRE(tuning);
  CHECK_EQ(tuning->critical_path_s, doctest::Approx(0.8 * 9));
  CHECK_EQ(tuning->period_s, doctest::Approx(0.1875 * 0.8 * 9));
  CHECK_EQ(tuning->restore_s, 1);
  const auto paper = tune({TuningRule::paper, true}, 10, 1);
  REQUIRE(paper);
  CHECK_EQ(paper->critical_path_s, doctest::Approx(12.5));
}

TEST_CASE("a bound that is shorter than restores is refused, whatever T is given") {
  check_refused({TuningRule::promise, true}, 0.1, 0.05);
  for (const bool for_processors : {false, true}) {
    check_refused({TuningRule::promise, for_processors}, 2, 2.5);
    check_refused({TuningRule::promise, for_processors, {}, {}, 0.1}, 2, 2.5);
    check_refused({TuningRule::promise, for_processors, {}, {}, 0.1}, 2, 2);
  }
  check_refused({TuningRule::promise, true, true, 0.05, 0.4}, 10, 0.001);  // T would be longer than C
  check_refused({TuningRule::promise, true, true, 1e-6}, 10, 0.001);
  const auto given = tune({TuningRule::promise, true, true, 1.0, 0.1}, 2, 2.5);
  REQUIRE(given);
  CHECK_EQ(given->critical_path_s, 1.0);
}

}  // namespace redrive::tuning_test
