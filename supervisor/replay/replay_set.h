// What the intervals of a replay set share when they are re-driven side by side.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "supervisor/plan/graph.h"
#include "supervisor/plan/plan.h"
#include "supervisor/replay/message_store.h"
#include "supervisor/replay/replay_session.h"

namespace redrive {

// The fork that a planned interval begins with, if it has no image.
std::optional<EventRef> birth_of(const Rdg& graph, const PlannedInterval& planned);

// `count` processors that this process may use, some several times if there are fewer. The first is the one that the
// kernel has put it on, which is the least busy.
std::vector<int> usable_processors(int count);
// The processor on which each planned interval is executed: the longest is placed first, each where there is the least
// to do.
std::vector<int> spread(const std::vector<PlannedInterval>& set, const std::vector<int>& processors);

// The store in which the intervals of a plan meet, known by their places in its replay set.
Result<std::unique_ptr<MessageStore>> store_for(const DependenceGraph& graph, const Plan& plan,
                                                PayloadTable::Keep keep = PayloadTable::Keep::until_received);

// Arrival numbers of all that events [first, end) receive, logged or not.
Result<std::vector<uint64_t>> arrivals_of(const Trace& trace, UnitId unit, EventIndex first, EventIndex end);

// What lets calls be answered inside re-driven processes; null, after a notice that says why, if that is not possible.
std::unique_ptr<ReplayTier> make_tier();

// Prints it on standard error. `reproduce`: the words after "redrive replay TRACE" that lead to it again.
void print_divergence(const Trace& trace, const Divergence& divergence, const std::string& reproduce);

struct SetRun {
  const Trace& trace;
  DependenceGraph& graph;
  const std::vector<int>& processors;  // those that intervals may be executed on
  ReplayTier* tier;                    // null: every call stops
  bool total_order = false;            // receives happen in the recorded order of all
  RestoreEngine* engine = nullptr;     // restores images; null: as restore() does it itself
  PayloadTable::Keep keep = PayloadTable::Keep::until_received;
};
// Executes pieces with replayers that meet in this store.
ReplaySession::Execute replayers(const SetRun& run, MessageStore& store);

// When the intervals of a set begin: all at once, or not more than there are processors, except those that wait. A set
// of which no interval was asked for in particular can be long.
enum class Start : uint8_t { at_once, as_there_is_room };

struct SetOutcome {
  std::vector<Result<Replayer::Outcome>> members;
  std::vector<uint64_t> arrivals;  // of receives, in their order; only with total_order
};
// Runs each interval of the plan's set on a thread of its own. The set is closed under dependences: what one receives,
// if it is not logged, is sent by another. If one fails, those that wait for it fail as well. An error: nothing was
// run.
Result<SetOutcome> run_set(const SetRun& run, const Plan& plan, const std::function<ReplayerOptions(size_t)>& options,
                           Start start = Start::at_once);

// Re-drives one interval with its replay set. The outcome has the divergence, if one of the set has diverged.
Result<Replayer::Outcome> redrive(const SetRun& run, UnitId unit, IntervalIndex interval, const ReplayerOptions& how);

// Re-drives every interval of the trace, one after the other, each with its replay set. Returns the seconds that each
// takes, restoring included. Fails if one cannot be re-driven, or diverges.
Result<std::vector<double>> replay_times_s(const Trace& trace, int jobs);

}  // namespace redrive
