// How often a thread that waits in a loop comes round before it lets others run. If it waits for one that
// computes for so long that this is preempted where it is, it comes round more often each time: a thread that spins for
// a while before it sleeps, as in libgomp, comes to that, and nobody has to be preempted for it any more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace redrive {

class LoopPatience {
 public:
  // It lets others run. `preemptions`: how many threads of its unit were preempted where they were until now.
  void gave_way(uint64_t preemptions) {
    const bool in_vain = std::exchange(preemptions_, preemptions) != preemptions;
    doublings_ = in_vain ? std::min(doublings_ + 1, kMostDoublings) : 0;
  }
  uint64_t times() const { return kTimes << doublings_; }

 private:
  // A program may also pause for a time, and a stop takes much longer than this.
  static constexpr uint64_t kTimes = 64;
  static constexpr unsigned kMostDoublings = 8;  // then it takes a millisecond or so

  uint64_t preemptions_ = 0;
  unsigned doublings_ = 0;
};

}  // namespace redrive
