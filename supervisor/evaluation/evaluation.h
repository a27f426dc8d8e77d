// What a policy would have kept of an execution, and how long it would then take to re-drive the intervals. Pure: works
// in memory, knows no trace.
#pragma once

#include "base/result.h"
#include "logstore/certificate.h"
#include "logstore/policy/policy.h"
#include "supervisor/evaluation/decided.h"
#include "supervisor/evaluation/execution.h"
#include "supervisor/evaluation/schedule.h"

namespace redrive {

// By which clock checkpoints are placed: each unit's CPU time, or the time that elapses for all (elapsed_ns).
enum class PlacementClock : uint8_t { cpu, real };
const std::vector<std::string>& clock_names();  // in the order of PlacementClock

// Where checkpoints are taken, apart from those at the start of programs.
struct CheckpointPlacement {
  bool recorded = true;  // where the recording took them
  // Otherwise every T: the first of each program at T, or at a random time up to this if it is nonzero. By the
  // real-time clock these are times since the beginning of the execution, and a unit that has done nothing since its
  // last checkpoint takes none, because it would be the same.
  uint64_t skew_ns = 0;
  uint64_t seed = 1;
  bool forced = true;          // also those that the policy asks for
  bool lengths_known = false;  // if recorded: tell the policy the length of intervals, unknown while recording
  PlacementClock clock = PlacementClock::cpu;  // if not recorded
};

// Fails if checkpoints would be so many that memory may not suffice: executions and times can be any.
Result<Decided> decide(const Execution& execution, Policy& policy, const PolicyParameters& parameters,
                       const CheckpointPlacement& placement);

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
  Spread multiplicity;     // the most of one unit in it
  Spread work_s;
  Spread makespan_s;       // of those replays that end
  uint64_t deadlocks = 0;  // replays that never end
  Spread predicted_s;      // as in `redrive plan`, but for errors of times
};
// `pace`: of the predictions.
Costs measure(const Execution& execution, const Decided& decided, uint32_t cores,
              ScheduleKind kind = ScheduleKind::list, const Pace& pace = {});

// The longest path to the end of each interval.
std::vector<uint64_t> critical_paths_ns(const Execution& execution, const Decided& decided);

}  // namespace redrive
