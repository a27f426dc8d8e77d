// The replay sets of an execution's intervals: what has to be executed, of which intervals, to re-drive one of them.
// They are found when they are asked for, or stored while the program runs.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "supervisor/evaluation/decided.h"
#include "supervisor/evaluation/execution.h"

namespace redrive {

// An interval of a replay set, and how much of it is needed.
struct Member {
  uint32_t interval = 0;
  uint64_t cpu_ns = 0;              // from its beginning to its requisite event
  std::span<const uint32_t> needs;  // its receives up to there that were not kept: steps
};

// Finds one set after the other, by a search back from the interval's receives.
class ReplaySets {
 public:
  ReplaySets(const Execution& execution, const Decided& decided);  // which must outlive it

  // The set of this interval, which then is its first member. Valid until the next call.
  const std::vector<Member>& find(uint32_t wanted);

  uint64_t visits() const { return visits_; }  // receives that all searches have looked at

 private:
  struct Reach {
    bool member = false;
    bool queued = false;
    uint32_t end_step = 0;  // one past the last step needed
    size_t scanned = 0;     // how many needs were examined
    uint64_t cpu_ns = 0;
  };

  void need(uint32_t send);
  void extend(uint32_t interval, uint64_t cpu_ns, uint32_t end_step = UINT32_MAX);

  const Execution& execution_;
  const Decided& decided_;
  std::vector<std::vector<uint32_t>> needs_;  // by interval: its receives that were not kept
  std::vector<Reach> reach_;                  // by interval
  std::vector<uint32_t> found_;               // intervals, in the order in which they were found
  std::vector<uint32_t> todo_;
  std::vector<Member> members_;
  uint64_t visits_ = 0;
};

// Zambonelli and Netzer's replay scheme 1: from what senders piggyback, each unit knows the replay set of its interval
// while it runs, and stores it with the next checkpoint. A plan then is there without a search.
class StoredSets {
 public:
  StoredSets(const Execution& execution, const Decided& decided);

  std::vector<uint32_t> load(uint32_t interval) const;  // its replay set: intervals in ascending order
  uint64_t bytes() const { return stored_.size(); }     // of all sets together

 private:
  using Set = std::vector<uint32_t>;

  void store(Set set);

  std::vector<std::vector<uint32_t>> of_unit_;        // by unit: its intervals
  std::vector<std::pair<uint32_t, uint32_t>> place_;  // by interval: its unit, and its place there
  Encoder stored_;
  std::vector<size_t> begin_;  // by interval: where its set begins
};

}  // namespace redrive
