// Whether a thread waits in vain for a lock that others release and take again (futex(2)).
//
// The baton changes hands at events. If a thread makes its calls only while it holds a lock, the lock is held whenever
// the baton changes hands: a thread that waits for it is woken each time that it is released, has its turn when it is
// held again, and goes back to sleep. So the baton is handed over at a call that wakes a thread: the lock is free then.
//
// Whether a turn was in vain is not known, only that no call was made in it, or that it was short. Threads that hand
// work to each other have many such turns, so this is done rarely enough to cost them little.
#pragma once

#include "supervisor/record/tracees/baton.h"

namespace redrive {

class LockTurns {
 public:
  // The thread that has had the baton since then sleeps until another one wakes it. `at_once`: it has made no other
  // call in its turn.
  void sleeps(bool at_once, Clock::time_point since, Clock::time_point now) {
    if ((at_once || now - since < kShort) && now - handed_over_ >= kBatonSlice) in_vain_ = true;
  }
  // Whether the baton is to be handed over at the next call that wakes a thread.
  bool in_vain() const { return in_vain_; }
  void handed_over(Clock::time_point now) { in_vain_ = false, handed_over_ = now; }

 private:
  static constexpr std::chrono::milliseconds kShort{1};

  bool in_vain_ = false;
  Clock::time_point handed_over_{};
};

}  // namespace redrive
