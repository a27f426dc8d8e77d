// What has to be added to a trace so that replays which take longer than the bound keep it.
#pragma once

#include <set>

#include "supervisor/plan/certificate.h"
#include "supervisor/plan/plan.h"

namespace redrive {

struct Repair {
  std::set<EventRef> payloads;  // of these receives
  std::set<UnitId> births;      // images of these units' first checkpoints
  bool empty() const { return payloads.empty() && births.empty(); }
};

// Greedy: for each interval in turn, what separates it from enough of its replay set for few bytes, and shortens other
// replays that are too long. A replay never gets longer by what is added for another one. What cannot be repaired is
// left: an interval that takes longer than the bound alone. The graph must have been read whole.
Repair choose_repair(Rdg graph, double bound_s, const ReplayCosts& costs);

}  // namespace redrive
