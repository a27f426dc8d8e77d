// When a thread that has the baton, while others wait for it, is looked at to see whether it waits for one of them in a
// loop. Each instruction of a look is a stop, so looks take a fiftieth of the time at most, and less and less of it
// while nothing is found.
#pragma once

#include <algorithm>
#include <cstdint>

#include "supervisor/record/kernel/tracer.h"

namespace redrive {

class LoopLooks {
 public:
  // How many instructions a look takes now; 0: none is due. Long ones find loops without a pause instruction. They come
  // only where `preemptions`, of threads of the unit where they were until now, show that it may be worth it.
  unsigned due(Clock::time_point now, uint64_t preemptions) const {
    if (preemptions - preemptions_ >= kPreemptions && long_.is_due(now)) return kLong;
    return short_.is_due(now) ? kShort : 0;
  }
  // A look at so many instructions has taken from `began` to `ended`.
  void took(unsigned instructions, Clock::time_point began, Clock::time_point ended, uint64_t preemptions, bool found) {
    if (instructions == kLong) {
      long_.took(began, ended, found);
      preemptions_ = preemptions;
    } else {
      short_.took(began, ended, found);
    }
  }

 private:
  static constexpr unsigned kShort = 32, kLong = 2048;
  static constexpr uint64_t kPreemptions = 8;

  class Share {
   public:
    bool is_due(Clock::time_point now) const { return now >= next_; }
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

  Share short_, long_;
  uint64_t preemptions_ = 0;  // when a long look was taken
};

}  // namespace redrive
