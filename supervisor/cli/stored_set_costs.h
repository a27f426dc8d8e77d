// What it costs to store replay sets, and what that saves when an interval is planned.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "logstore/trace.h"
#include "supervisor/evaluation/replay_sets.h"

namespace redrive {

// Times are means over intervals, each planned once.
struct StoredSetCosts {
  uint64_t bytes = 0;      // of all sets
  uint64_t different = 0;  // sets that are not what a search finds
  double load_s = 0;
  double search_s = 0;               // in memory
  std::optional<double> planning_s;  // from the trace, including what has to be read of it
};

// `trace`: null, unless it holds exactly what was decided.
Result<StoredSetCosts> stored_set_costs(const Execution& execution, const Decided& decided, const Trace* trace);

}  // namespace redrive
