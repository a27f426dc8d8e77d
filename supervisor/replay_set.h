// Re-drives intervals side by side, which exchange their messages and children.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "supervisor/graph.h"
#include "supervisor/replayer.h"

namespace redrive {

struct SetRun {
  const Trace& trace;
  DependenceGraph& graph;
  const std::vector<int>& processors;  // those that intervals may be executed on
  ReplayTier* tier;                    // null: every call stops
};

// As many processors that this process may use, some several times if there are fewer. First the one that the kernel
// has put it on, which is the least busy.
std::vector<int> usable_processors(int count);

// What lets calls be answered inside re-driven processes; null, with a word why, if that cannot be.
std::unique_ptr<ReplayTier> make_tier();

// Runs each member on a thread of its own. They are closed under dependences: what a member receives and is not logged
// is sent by one of them. What a member's outcome does not hold another's does: of those that waited for one that
// failed, all fail. An error: nothing was run.
Result<std::vector<Result<Replayer::Outcome>>> run_set(const SetRun& run, const std::vector<PlannedInterval>& members,
                                                       const std::function<ReplayerOptions(size_t)>& options);

}  // namespace redrive
