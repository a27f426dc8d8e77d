// The total order of receives: each of them, by its arrival number, happens when all receives with smaller numbers have
// happened. This cannot deadlock, because the recorder numbers a receive only when it has seen everything on which the
// receive depends. It only keeps the order; MessageStore, which guards it, waits. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace redrive {

class ArrivalOrder {
 public:
  // From now on these receives happen, which are given in any order; all that were given before have happened.
  void keep(std::vector<uint64_t> arrivals) {
    turns_ = std::move(arrivals);
    std::sort(turns_.begin(), turns_.end());
    next_ = 0;
  }
  bool is_kept() const { return !turns_.empty(); }

  bool is_turn(uint64_t arrival) const { return next_ < turns_.size() && turns_[next_] == arrival; }
  void take(uint64_t arrival) {
    taken_.push_back(arrival);
    ++next_;
  }
  const std::vector<uint64_t>& taken() const { return taken_; }  // in the order in which they happened

  // An interval has failed: some turns will not be taken.
  void break_off() { broken_ = true; }
  bool is_broken() const { return broken_; }

 private:
  std::vector<uint64_t> turns_, taken_;
  size_t next_ = 0;  // of turns_
  bool broken_ = false;
};

}  // namespace redrive
