// What a replay must execute to reach a distributed breakpoint: the checkpoint that each unit starts from, and the
// intervals of other units that they need.
#pragma once

#include <vector>

#include "supervisor/plan/breakpoint.h"
#include "supervisor/plan/graph.h"

namespace redrive {

struct RecoveryLine {
  // The interval that each unit stands in, for units that have been started and have events to come.
  std::vector<PlanRequest> standing;
  // What is executed until all units stand. It begins with their intervals, in the same order.
  Plan plan;
};

// An Error if no unit stands anywhere, or one cannot be re-driven that far.
Result<RecoveryLine> recovery_line(const Communication& communication, DependenceGraph& graph,
                                   const Breakpoint& breakpoint);

// What is executed until one unit stands right before an event; no other unit needs to stand.
Result<RecoveryLine> line_to(DependenceGraph& graph, EventRef event);

// What is executed until all units stand at a later breakpoint, inside the intervals that they stand in. An Error if
// the breakpoint lies outside these, or another unit would have to stand too.
Result<Plan> plan_to(const RecoveryLine& line, const Communication& communication, DependenceGraph& graph,
                     const Breakpoint& from, const Breakpoint& later);

// What is executed until all units are at the ends of their intervals.
Result<Plan> plan_to_ends(const RecoveryLine& line, DependenceGraph& graph);

}  // namespace redrive
