// When a thread hands the baton over not at an event but some instructions after it, and how many.
//
// If the baton changed hands only at events, a thread that makes its calls only while it holds a lock would hold the
// lock whenever another thread looks at it, and one that looks again and again (trylock and sleep, sched_yield,
// spinning) would never get it. Somewhere between two events the lock is free. Nobody knows where, so distances of each
// magnitude are equally likely. Each instruction is a stop of some 20 us, so this is done rarely enough to cost
// little.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "supervisor/record/tracees/baton.h"
#include "supervisor/tier/stepping.h"

namespace redrive {

class StepTurns {
 public:
  // Whether this thread, which runs, is to go on for some instructions after its next call, now that others wait. The
  // one that did so last lets others come before it: those that look at the lock make calls as well.
  bool is_due(ThreadSerial thread, Clock::time_point now) const {
    return next_ && now >= (thread == last_ ? *next_ + kBatonSlice : *next_);
  }
  // The same, at the call. Says so once, even if nothing comes of it, and not before `first` has passed since it was
  // asked first: short programs need none.
  bool take(ThreadSerial thread, Clock::time_point now, Clock::duration first) {
    if (!next_) next_ = now + first;
    if (!is_due(thread, now)) return false;
    last_ = thread;
    taken_ = now;
    next_ = now + kBatonSlice;
    return true;
  }
  // How many, between 1 and kMostSteps. Most events come no sooner than that.
  unsigned steps() {
    const double magnitude = std::uniform_real_distribution(0.0, std::log(most_))(random_);
    most_ = std::min(most_ + most_ / 8 + 1, kMostSteps);
    return static_cast<unsigned>(std::exp(magnitude));
  }
  // An event came after fewer.
  void came_to_event(size_t after) { most_ = std::max(static_cast<unsigned>(after), 1u); }
  // Others have waited for it until now.
  void took_until(Clock::time_point now) { next_ = std::max(*next_, now + kTimesAsLong * (now - taken_)); }

 private:
  static constexpr int kTimesAsLong = 50;  // other things take, between two such turns

  ThreadSerial last_ = ~ThreadSerial{};
  Clock::time_point taken_{};
  std::optional<Clock::time_point> next_;
  unsigned most_ = kMostSteps;
  std::minstd_rand random_;
};

}  // namespace redrive
