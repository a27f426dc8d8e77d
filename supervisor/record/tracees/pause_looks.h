// When a thread that has the baton, while others wait for it, is looked at to see whether it waits for one of them in a
// loop. Each look takes some instructions, one stop each, so this takes a fiftieth of the time at most, and less and
// less of it while nothing is found.
#pragma once

#include <algorithm>

#include "supervisor/record/kernel/tracer.h"

namespace redrive {

class PauseLooks {
 public:
  bool is_due(Clock::time_point now) const { return now >= next_; }
  // One has taken from `began` to `ended`.
  void took(Clock::time_point began, Clock::time_point ended, bool found) {
    in_vain_ = found ? 0 : std::min(in_vain_ + 1, kMostInVain);
    next_ = ended + (kTimesAsLong << in_vain_) * (ended - began);
  }

 private:
  static constexpr int kTimesAsLong = 50;  // other things take
  static constexpr int kMostInVain = 6;    // that make it rarer

  Clock::time_point next_{};
  int in_vain_ = 0;  // one after the other
};

}  // namespace redrive
