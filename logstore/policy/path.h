// The longest path into a unit's current interval (Netzer et al., figure 3), used by the policies that bound it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "logstore/policy/policy.h"

namespace redrive {

struct Path {
  uint64_t at_ns = 0;           // of the unit's previous event
  uint64_t path_ns = 0;         // the papers' cp
  uint64_t until_ns = 0;        // the interval lasts until then at least, because a checkpoint was skipped
  uint64_t by_ns = UINT64_MAX;  // ... and ends then at the latest, if that is known

  // A clock that stands still or goes back adds nothing.
  void advance(uint64_t now_ns) {
    if (now_ns <= at_ns) return;
    path_ns += now_ns - at_ns;
    at_ns = now_ns;
  }

  // Upper bound of the time that remains in the interval.
  uint64_t remaining_ns(const PolicyParameters& parameters) const {
    const uint64_t end_ns = std::min(std::max(parameters.checkpoint_period_ns, until_ns), by_ns);
    return end_ns - std::min(end_ns, at_ns);
  }

  // Whether a path of this length to the next receive could exceed C at the end of the interval.
  bool may_exceed(uint64_t to_receive_ns, const PolicyParameters& parameters) const {
    const uint64_t limit_ns = parameters.critical_path_ns, left_ns = remaining_ns(parameters);
    return left_ns > limit_ns || to_receive_ns > limit_ns - left_ns;
  }
};

}  // namespace redrive
