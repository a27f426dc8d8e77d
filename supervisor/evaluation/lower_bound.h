// How far from the best: the least that any policy could have kept of an execution and still have made the same
// promise.
//
// The checkpoints are given. So each choice of messages to keep determines every interval's critical path and replay
// set, and the best choice is the one that keeps least and exceeds no limit. To find it is NP-hard (Netzer et al.).
// Instead, this computes a number that no choice can go below, from a linear program that may keep fractions of
// messages. Each of its rows is a part of a replay that alone exceeds the limit:
//
// Path. Let some interval's path lead through the receives R, and be longer than the limit. If none of R is kept, the
// replay follows the whole path. So at least one is kept: sum of x over R >= 1.
//
// Work. Let P be parts of intervals, each with a way of receives to the wanted interval, and W their work. The replay
// executes every part of whose way no receive is kept, and on J cores has time for at most J * limit. So the parts that
// it does not execute have a work of at least W - J * limit, and each has a kept receive on its way: sum over receives
// of x * (work of the parts whose way it is on) >= W - J * limit. Because x is 0 or 1, what a receive counts for may be
// reduced to W - J * limit, which demands more of fractions.
//
// Both hold for every schedule, and so for every policy. Restores do not count: no policy's limit includes them.
// Receives that carry no message to another unit, and births, are taken to be kept, at no cost.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "supervisor/evaluation/evaluation.h"

namespace redrive {

// Executions with more messages are refused.
inline constexpr uint64_t kMostBoundedMessages = 250'000;

// What a policy promises of every replay. Where the given decisions exceed it, because a checkpoint came late, an
// interval's limit is what they make of it.
struct ReplayLimit {
  uint64_t path_ns = 0;           // the longest critical path
  std::optional<uint32_t> cores;  // if given: replays on so many cores take no longer than that either
};

struct LowerBound {
  uint64_t bytes = 0;
  uint64_t messages = 0;
  // Whether both linear programs were solved, to within 2 %. If not, the time for it was over, and more time might show
  // that more must be kept.
  bool is_solved = false;
};

// A lower bound of the bytes that must be kept, and one of the messages. `most_s`: CPU time for either. Fails if there
// are too many messages, or no solver.
Result<LowerBound> lower_bound(const Execution& execution, const Decided& decided, const ReplayLimit& limit,
                               double most_s = 10);

}  // namespace redrive
