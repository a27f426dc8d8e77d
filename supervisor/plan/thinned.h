// A graph with few dependences, for plans that need not be exact.
#pragma once

#include <cstddef>

#include "supervisor/plan/plan.h"

namespace redrive {

// Of what an interval receives from another one within a slice of its CPU time, only the last dependence is left, with
// the bytes of all. So a plan of the result has the same executions, each of which ends at most a slice earlier. The
// slices are as short as `most` dependences allow, but no longer than an eighth of an interval; births stay as they
// are. If the graph has no more than `most` dependences, the result is the graph.
Rdg thinned(const Rdg& graph, size_t most);

}  // namespace redrive
