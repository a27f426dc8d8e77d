#include "supervisor/plan/thinned.h"

#include <algorithm>
#include <tuple>

namespace redrive {
namespace {

constexpr uint64_t kMostSlices = 1024, kFewestSlices = 8;  // of an interval

using Dependences = std::vector<Rdg::Dependence>;

// By the sending interval, the place of what was kept last.
using LastKept = std::map<std::pair<UnitId, IntervalIndex>, size_t>;

Dependences thinned(const Rdg& graph, UnitId unit, const Dependences& all, uint64_t slices) {
  const auto& intervals = graph.units.at(unit);
  const std::optional<EventRef> birth = intervals.front().birth;
  Dependences few;
  LastKept last;
  std::pair<IntervalIndex, uint64_t> now{0, 0};  // the interval, and its slice
  for (const Rdg::Dependence& dependence : all) {
    const auto receiving = graph.interval_of(dependence.receiver);
    const auto sending = graph.interval_of(dependence.sender);
    if (!receiving || !sending || dependence.sender == birth) {
      few.push_back(dependence);
      continue;
    }
    const uint64_t whole_ns = std::max<uint64_t>(intervals[*receiving].cpu_ns, 1);
    const std::pair slice{*receiving, std::min(dependence.receiver_at_ns, whole_ns) / (whole_ns / slices + 1)};
    if (slice != now) last.clear();
    now = slice;
    const auto [at, is_first] = last.try_emplace({dependence.sender.unit, *sending}, few.size());
    if (is_first) {
      few.push_back(dependence);
      continue;
    }
    Rdg::Dependence& kept = few[at->second];
    kept.bytes += dependence.bytes;
    kept.receiver = dependence.receiver;
    kept.receiver_at_ns = dependence.receiver_at_ns;
    if (kept.sender.event < dependence.sender.event) {
      kept.sender = dependence.sender;
      kept.sender_at_ns = dependence.sender_at_ns;
    }
  }
  std::ranges::stable_sort(few, {}, [](const auto& each) { return each.receiver.event; });
  return few;
}

size_t size_of(const Rdg& graph) {
  size_t sum = 0;
  for (const auto& [unit, dependences] : graph.unlogged) sum += dependences.size();
  return sum;
}

}  // namespace

Rdg thinned(const Rdg& graph, size_t most) {
  Rdg result{graph.units, {}};
  if (size_of(graph) <= most) {
    result.unlogged = graph.unlogged;
    return result;
  }
  for (uint64_t slices = kMostSlices; slices >= kFewestSlices; slices /= 2) {
    for (const auto& [unit, all] : graph.unlogged) result.unlogged[unit] = thinned(graph, unit, all, slices);
    if (size_of(result) <= most) break;
  }
  return result;
}

}  // namespace redrive
