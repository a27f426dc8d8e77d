// From a distributed breakpoint to what a replay executes: the checkpoint that each unit starts from, and the intervals
// of others that they need.
#pragma once

#include <vector>

#include "supervisor/plan/breakpoint.h"
#include "supervisor/plan/graph.h"

namespace redrive {

struct RecoveryLine {
  // The interval that each unit stands in: of those that have been started and have events to come.
  std::vector<PlanRequest> standing;
  // What is executed until all stand. Begins with their intervals, in the same order.
  Plan plan;
};

// An Error: no unit stands anywhere, or one cannot be re-driven so far.
Result<RecoveryLine> recovery_line(const Communication& communication, DependenceGraph& graph,
                                   const Breakpoint& breakpoint);

// What is executed until all stand at a later breakpoint, inside the intervals that they stand in. An
// Error: it lies beyond, or another unit would have to stand too.
Result<Plan> plan_to(const RecoveryLine& line, const Communication& communication, DependenceGraph& graph,
                     const Breakpoint& from, const Breakpoint& later);

// What is executed until the ends of the intervals that they stand in.
Result<Plan> plan_to_ends(const RecoveryLine& line, DependenceGraph& graph);

}  // namespace redrive
