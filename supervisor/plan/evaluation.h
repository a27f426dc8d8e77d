// What a policy would have kept of an execution, and how long it would then take to re-drive the intervals. Pure: works
// in memory, knows no trace.
#pragma once

#include <optional>

#include "logstore/policy/policy.h"
#include "supervisor/plan/execution.h"

namespace redrive {

// Where checkpoints are taken, apart from those at the start of programs.
struct Placement {
  bool recorded = true;  // where the recording took them
  // Otherwise every T: the first of each program at a random time up to T, or up to this if it is nonzero.
  uint64_t skew_ns = 0;
  uint64_t seed = 1;
  bool forced = true;          // also those that the policy asks for
  bool lengths_known = false;  // if recorded: tell the policy the length of intervals, unknown while recording
};

// An execution with a policy's decisions.
struct Decided {
  struct Interval {
    uint32_t unit = 0;
    uint64_t start_ns = 0;  // CPU time since the unit's beginning
    uint64_t end_ns = 0;
    std::optional<uint32_t> birth;  // the fork that must be executed again for it
    double restore_s = 0;
    uint64_t cpu_ns() const { return end_ns - start_ns; }
  };
  std::vector<Interval> intervals;    // those of a unit in ascending order
  std::vector<uint32_t> interval_of;  // by step
  std::vector<bool> kept;             // by step: receives and births
  uint64_t checkpoints = 0;           // images, that is, without those at the start of programs
  uint64_t forced_checkpoints = 0;    // how many of these the policy asked for
};
Decided decide(const Execution& execution, Policy& policy, const PolicyParameters& parameters,
               const Placement& placement);

struct Logged {
  uint64_t messages = 0, logged_messages = 0;
  uint64_t message_bytes = 0, logged_bytes = 0;
  uint64_t births = 0, stored_births = 0;
};
Logged count_logged(const Execution& execution, const Decided& decided);

// Values over intervals. The sum is over those that were measured.
struct Spread {
  double sum = 0, largest = 0;
  void add(double value) {
    sum += value;
    if (value > largest) largest = value;
  }
};
struct Costs {
  uint64_t intervals = 0;
  uint64_t measured = 0;   // intervals whose replay set was built: all, or evenly spread ones if that takes too long
  Spread critical_path_s;  // of all intervals
  Spread replay_set;       // intervals in it
  Spread work_s;
  Spread makespan_s;   // of a list schedule on the cores: first ready, first run
  Spread predicted_s;  // Graham's bound, including restores, as in `redrive plan`
};
Costs measure(const Execution& execution, const Decided& decided, uint32_t cores);

// The longest path to the end of each interval.
std::vector<uint64_t> critical_paths_ns(const Execution& execution, const Decided& decided);

}  // namespace redrive
