// What is left of the timers of the past.
#include "supervisor/live/timers.h"

#include <signal.h>
#include <sys/timerfd.h>
#include <time.h>

#include "tests/unit/unit_test.h"

namespace redrive::timers_test {

namespace {

constexpr uint64_t kSecond = 1'000'000'000, kSet = 100 * kSecond;  // when the timers are set

__kernel_itimerspec seconds(int64_t first, int64_t period) { return {{period, 0}, {first, 0}}; }
itimerval seconds_of(time_t first, time_t period) { return {{period, 0}, {first, 0}}; }

std::optional<TimerSetting> timerfd_left(const __kernel_itimerspec& asked, uint64_t flags, uint64_t expirations,
                                         uint64_t now_ns, int clock = CLOCK_MONOTONIC) {
  PastCall set;
  set.args[1] = flags;
  set.at_ns = kSet;
  return left_of_timerfd(set, asked, clock, expirations, now_ns);
}

std::optional<itimerval> left(const itimerval& asked, bool signalled, uint64_t now_ns, uint64_t which = ITIMER_REAL) {
  TimerModel timer{{}, signalled};
  timer.set.at_ns = kSet;
  return left_of_itimer(which, timer, asked, now_ns);
}

}  // namespace

TEST_CASE("timers: a timerfd expires when it would have, and not again") {
  const auto once = timerfd_left(seconds(5, 0), 0, 0, kSet + 2 * kSecond);
  REQUIRE(once);
  CHECK_EQ(once->flags, TFD_TIMER_ABSTIME);
  CHECK_EQ(once->value.it_value.tv_sec, 105);
  CHECK(timerfd_left(seconds(5, 0), 0, 0, kSet + 9 * kSecond));  // nobody has read it
  CHECK_FALSE(timerfd_left(seconds(5, 0), 0, 1, kSet + 9 * kSecond));
  CHECK_FALSE(timerfd_left(seconds(105, 0), TFD_TIMER_ABSTIME, 1, kSet + 9 * kSecond));
  CHECK_FALSE(timerfd_left(seconds(0, 5), 0, 0, kSet));  // it was stopped
}

TEST_CASE("timers: a periodic timerfd goes on with the expirations that were not read") {
  for (const auto& [first, flags] : {std::pair(5, 0), std::pair(105, int{TFD_TIMER_ABSTIME})}) {
    const auto left = timerfd_left(seconds(first, 2), static_cast<uint64_t>(flags), 3, kSet + 12 * kSecond);
    REQUIRE(left);
    CHECK_EQ(left->flags, TFD_TIMER_ABSTIME);
    CHECK_EQ(left->value.it_value.tv_sec, 111);
    CHECK_EQ(left->value.it_interval.tv_sec, 2);
  }
}

TEST_CASE("timers: of the time of day, what is relative goes on, and a date stays one") {
  const auto relative = timerfd_left(seconds(5, 0), 0, 0, kSet + 2 * kSecond, CLOCK_REALTIME);
  REQUIRE(relative);
  CHECK_EQ(relative->flags, 0);
  CHECK_EQ(relative->value.it_value.tv_sec, 3);
  const auto late = timerfd_left(seconds(5, 0), 0, 0, kSet + 9 * kSecond, CLOCK_REALTIME);
  REQUIRE(late);
  CHECK_EQ(late->value.it_value.tv_nsec, 1);
  const auto date = timerfd_left(seconds(1'000'000, 0), TFD_TIMER_ABSTIME, 0, kSet, CLOCK_REALTIME);
  REQUIRE(date);
  CHECK_EQ(date->value.it_value.tv_sec, 1'000'000);
}

TEST_CASE("timers: the longest times, and times that are not known") {
  const auto never = timerfd_left(seconds(INT64_MAX, INT64_MAX), 0, UINT64_MAX, kSet);
  REQUIRE(never);
  CHECK_EQ(never->value.it_value.tv_sec, INT64_MAX / static_cast<int64_t>(kSecond));
  const auto unknown = timerfd_left(seconds(5, 0), 0, 0, 0);
  REQUIRE(unknown);
  CHECK_EQ(unknown->value.it_value.tv_sec, 5);
}

TEST_CASE("timers: a process's timer has the rest of its time, and expires at once if its signal has not come") {
  CHECK_EQ(left(seconds_of(5, 0), false, kSet + 2 * kSecond)->it_value.tv_sec, 3);
  CHECK_FALSE(left(seconds_of(5, 0), true, kSet + 6 * kSecond));
  const auto late = left(seconds_of(5, 0), false, kSet + 6 * kSecond);
  REQUIRE(late);
  CHECK_EQ(late->it_value.tv_sec, 0);
  CHECK_EQ(late->it_value.tv_usec, 1);
  CHECK_FALSE(left(seconds_of(0, 5), false, kSet));  // it was stopped
}

TEST_CASE("timers: a periodic one of a process has the rest of its period") {
  const auto rest = left(seconds_of(5, 4), true, kSet + 10 * kSecond);
  REQUIRE(rest);
  CHECK_EQ(rest->it_value.tv_sec, 3);
  CHECK_EQ(rest->it_interval.tv_sec, 4);
}

TEST_CASE("timers: those of processor time start anew, with their period if they have expired") {
  CHECK_EQ(left(seconds_of(5, 2), false, kSet + 9 * kSecond, ITIMER_PROF)->it_value.tv_sec, 5);
  CHECK_EQ(left(seconds_of(5, 2), true, kSet + 9 * kSecond, ITIMER_PROF)->it_value.tv_sec, 2);
  CHECK_FALSE(left(seconds_of(5, 0), true, kSet + 9 * kSecond, ITIMER_VIRTUAL));
}

}  // namespace redrive::timers_test
