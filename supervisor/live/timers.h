// What is left of the timers of the past, as calls that set them again are to be given it.
//
// Times of calls are on the recording host's CLOCK_MONOTONIC, which goes on where it was (spec.clock_ns): `now_ns`; 0:
// that is not known, and relative timers start anew.
#pragma once

#include <linux/time_types.h>
#include <sys/time.h>

#include <optional>

#include "supervisor/live/kernel_objects.h"

namespace redrive {

struct TimerSetting {
  int flags = 0;  // of timerfd_settime(2)
  __kernel_itimerspec value{};
};

// What is left of a timerfd for `clock`. `set`, `asked`: the last timerfd_settime(2), and what it was given.
// `expirations`: how many were read since. Nothing: it does not run, as one without a period that was read since.
std::optional<TimerSetting> left_of_timerfd(const PastCall& set, const __kernel_itimerspec& asked, int clock,
                                            uint64_t expirations, uint64_t now_ns);

// What is left of a process's timer (setitimer(2)), for which `which` is ITIMER_REAL or so. Nothing: it does not run,
// as one without a period whose signal has arrived. A signal that nobody has sent is taken to be the timer's. What has
// gone by of the time of one that counts processor time is not known: it starts anew.
std::optional<itimerval> left_of_itimer(uint64_t which, const TimerModel& timer, const itimerval& asked,
                                        uint64_t now_ns);

}  // namespace redrive
