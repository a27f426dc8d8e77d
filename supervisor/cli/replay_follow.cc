// redrive replay --follow: re-drives parts of a trace while it is being recorded.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "interceptors/trapped_instructions.h"
#include "supervisor/cli/replay.h"
#include "supervisor/plan/graph.h"
#include "supervisor/replay/replay_set.h"

namespace redrive {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(100);  // how often there may be something new
constexpr int kShareOfOpening = 5;  // a growing trace is read again after so many times what that takes
constexpr auto kMostReplays = std::chrono::seconds(1);  // of one look; then there may be newer intervals

using IntervalPlace = std::pair<UnitId, IntervalIndex>;

// Intervals that end in an image, so that there is something to compare with, the latest of each unit first.
std::vector<IntervalPlace> comparable(const Trace& trace, const Rdg& graph, const std::set<IntervalPlace>& done) {
  std::vector<IntervalPlace> found;
  for (const auto& [unit, intervals] : graph.units) {
    for (IntervalIndex i = 0; i < intervals.size(); ++i) {
      const bool whole = intervals[i].reachable && ends_in_image(trace, graph, unit, i);
      if (whole && !done.contains({unit, i})) found.emplace_back(unit, i);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const IntervalPlace& a, const IntervalPlace& b) { return a.second > b.second; });
  return found;
}

}  // namespace

Result<Followed> follow_recording(const std::string& directory, const ReplayOptions& options, RestoreEngine* engine) {
  trap_own_instructions();
  const std::vector<int> processors = usable_processors(options.jobs);
  const auto tier = options.in_process ? make_tier() : nullptr;
  Followed followed;
  std::set<IntervalPlace> done;
  std::set<UnitId> diverged;
  for (;;) {
    const auto opening = Clock::now();
    ASSIGN_OR_RETURN(const auto trace, Trace::open(directory));
    if (!trace->recording()) return followed;
    ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(*trace));
    const auto opened = Clock::now();
    const SetRun run{*trace, graph, processors, tier.get(), false, engine};
    for (const auto& [unit, interval] : comparable(*trace, graph.rdg(), done)) {
      if (Clock::now() - opened > kMostReplays) break;
      if (diverged.contains(unit)) continue;
      ReplayerOptions how;
      how.verify = true;
      const auto outcome = redrive(run, unit, interval, how);
      // What cannot be re-driven yet may be later, and is reported then if it cannot.
      if (!outcome) continue;
      done.emplace(unit, interval);
      ++followed.intervals;
      if (!outcome->divergence) continue;
      const Divergence& its = *outcome->divergence;
      diverged.insert(its.unit);
      if (followed.diverged.insert({its.unit, its.event}).second) {
        print_divergence(*trace, its, fmt::format("{}:{} --verify", unit, interval));
      }
    }
    std::this_thread::sleep_for(std::max<Clock::duration>(kLook, kShareOfOpening * (opened - opening)));
  }
}

}  // namespace redrive
