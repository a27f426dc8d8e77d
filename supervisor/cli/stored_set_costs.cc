#include "supervisor/cli/stored_set_costs.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "supervisor/plan/graph.h"

namespace redrive {
namespace {

using Set = std::vector<uint32_t>;

// Calls `call`, and adds the time that it took.
template <typename Call>
decltype(auto) timed(double& sum_s, Call call) {
  const auto start = std::chrono::steady_clock::now();
  decltype(auto) result = call();
  sum_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Set sorted(const std::vector<Member>& members) {
  Set set;
  for (const Member& member : members) set.push_back(member.interval);
  std::sort(set.begin(), set.end());
  return set;
}

// The set as the trace numbers units and intervals.
using PlannedSet = std::set<std::pair<UnitId, IntervalIndex>>;

Result<PlannedSet> plan_from_trace(const Trace& trace, UnitId unit, IntervalIndex interval) {
  ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(trace));
  ASSIGN_OR_RETURN(const PlanResult result, graph.plan(unit, interval));
  if (!result.plan) return Error{describe(*result.error), Status::damaged};
  PlannedSet places;
  for (const PlannedInterval& planned : result.plan->replay_set) places.emplace(planned.unit, planned.interval);
  return places;
}

}  // namespace

Result<StoredSetCosts> stored_set_costs(const Execution& execution, const Decided& decided, const Trace* trace) {
  StoredSetCosts costs;
  const StoredSets stored(execution, decided);
  ReplaySets sets(execution, decided);
  std::vector<std::pair<UnitId, IntervalIndex>> places;
  std::vector<IntervalIndex> next(execution.units);
  for (const auto& interval : decided.intervals) {
    places.emplace_back(trace ? trace->units()[interval.unit].unit : interval.unit, next[interval.unit]++);
  }
  costs.bytes = stored.bytes();
  double planning_s = 0;
  for (uint32_t i = 0; i < decided.intervals.size(); ++i) {
    const Set set = timed(costs.load_s, [&] { return stored.load(i); });
    const auto& members = timed(
        costs.search_s, [&]() -> const auto& { return sets.find(i); });
    bool same = set == sorted(members);
    if (trace) {
      ASSIGN_OR_RETURN(const PlannedSet planned,
                       timed(planning_s, [&] { return plan_from_trace(*trace, places[i].first, places[i].second); }));
      PlannedSet loaded;
      for (const uint32_t interval : set) loaded.insert(places[interval]);
      same = same && loaded == planned;
    }
    costs.different += !same;
  }
  const auto count = static_cast<double>(decided.intervals.size());
  costs.load_s /= count;
  costs.search_s /= count;
  if (trace) costs.planning_s = planning_s / count;
  return costs;
}

}  // namespace redrive
