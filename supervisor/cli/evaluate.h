// redrive evaluate: what policies would have kept of an execution, and how long replays would then take.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/cli/command.h"
#include "supervisor/evaluation/evaluation.h"
#include "supervisor/evaluation/execution.h"

namespace redrive {

// All combinations of the values in the lists are evaluated, one row for each. Empty: as recorded.
struct EvaluateOptions {
  std::string trace;
  std::optional<SyntheticOptions> synthetic;  // instead of a trace
  std::vector<std::string> policies;          // empty: all
  std::vector<double> critical_path_s, checkpoint_period_s, skew_s;
  std::vector<uint32_t> set_bound, multiplicity, cores;
  std::optional<PlacementClock> clock;  // if checkpoints are placed anew; none: by CPU time
  ScheduleKind schedule = ScheduleKind::list;
  bool approximate = false;
  bool measure = false;      // re-drive every interval of the trace
  bool optimal = false;      // also the least that any policy could have kept
  bool stored_sets = false;  // also store the replay sets, and time planning with and without them
  int jobs = 1;              // the cores, if none are given and none were recorded
  uint64_t seed = 1;
  bool json = false;
  bool csv = false;
};

std::unique_ptr<Command> make_evaluate_command();

}  // namespace redrive
