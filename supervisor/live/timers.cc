#include "supervisor/live/timers.h"

#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>

#include <algorithm>

namespace redrive {
namespace {

constexpr uint64_t kSecond = 1'000'000'000, kMicrosecond = 1'000;
// The kernel's last moment, about 292 years: programs may ask for more.
constexpr uint64_t kNever = INT64_MAX;

uint64_t in_ns(int64_t seconds, int64_t rest_ns) {
  if (seconds < 0 || rest_ns < 0) return 0;
  return std::min(static_cast<uint64_t>(seconds), kNever / kSecond) * kSecond + static_cast<uint64_t>(rest_ns);
}

__kernel_timespec spec_of(uint64_t ns) {
  return {static_cast<int64_t>(ns / kSecond), static_cast<long long>(ns % kSecond)};
}

timeval timeval_of(uint64_t ns) {
  const uint64_t microseconds = std::max<uint64_t>(ns / kMicrosecond, 1);  // 0 would be: never
  constexpr uint64_t kPerSecond = kSecond / kMicrosecond;
  return {static_cast<time_t>(microseconds / kPerSecond), static_cast<suseconds_t>(microseconds % kPerSecond)};
}

}  // namespace

std::optional<TimerSetting> left_of_timerfd(const PastCall& set, const __kernel_itimerspec& asked, int clock,
                                            uint64_t expirations, uint64_t now_ns) {
  const uint64_t first = in_ns(asked.it_value.tv_sec, asked.it_value.tv_nsec);
  const uint64_t period = in_ns(asked.it_interval.tv_sec, asked.it_interval.tv_nsec);
  if (first == 0 || (period == 0 && expirations > 0)) return std::nullopt;
  const int flags = static_cast<int>(set.args[1]);
  const bool absolute = flags & TFD_TIMER_ABSTIME;
  const bool time_of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_ALARM;
  const bool known = absolute ? !time_of_day : now_ns > 0 && set.at_ns > 0;
  if (!known) return TimerSetting{flags, asked};
  uint64_t read = 0, next = absolute ? first : set.at_ns + first;
  if (__builtin_mul_overflow(expirations, period, &read) || __builtin_add_overflow(next, read, &next)) next = kNever;
  next = std::min(next, kNever);
  TimerSetting left{flags, asked};
  if (time_of_day) {
    left.value.it_value = spec_of(next > now_ns ? next - now_ns : 1);
  } else {
    left.flags |= TFD_TIMER_ABSTIME;
    left.value.it_value = spec_of(next);
  }
  return left;
}

std::optional<itimerval> left_of_itimer(uint64_t which, const TimerModel& timer, const itimerval& asked,
                                        uint64_t now_ns) {
  const auto ns = [](const timeval& time) {
    return in_ns(time.tv_sec, time.tv_usec * static_cast<int64_t>(kMicrosecond));
  };
  const uint64_t first = ns(asked.it_value), period = ns(asked.it_interval);
  if (first == 0 || (period == 0 && timer.signalled)) return std::nullopt;
  itimerval left = asked;
  if (which != ITIMER_REAL || now_ns == 0 || timer.set.at_ns == 0) {
    if (timer.signalled) left.it_value = left.it_interval;
    return left;
  }
  const uint64_t expires = timer.set.at_ns + first;
  if (expires > now_ns) {
    left.it_value = timeval_of(expires - now_ns);
  } else {
    left.it_value = timeval_of(period ? period - (now_ns - expires) % period : 0);
  }
  return left;
}

}  // namespace redrive
