#include "supervisor/graph.h"

#include <algorithm>

namespace redrive {

IntervalExtent interval_extent(const Trace& trace, UnitId unit, IntervalIndex interval) {
  const auto& intervals = trace.intervals(unit);
  CHECK(interval < intervals.size());
  IntervalExtent extent{intervals[interval].first_event, trace.event_count(unit), 0};
  if (interval + 1 < intervals.size()) extent.end_event = intervals[interval + 1].first_event;
  if (const IntervalEnd* end = trace.interval_end(unit, interval)) {
    extent.end_event = end->end_event;
    extent.cpu_ns = end->cpu_ns;
  }
  return extent;
}

bool startable(const IntervalRecord& interval) { return interval.kind != CheckpointKind::image || interval.has_image; }

bool is_message(UnitId receiver, const Receive& receive) {
  return std::any_of(receive.parts.begin(), receive.parts.end(),
                     [&](const MessagePart& part) { return part.sender.unit != 0 && part.sender.unit != receiver; });
}

namespace {

// When each send happened, by unit; events ascend.
struct SentAt {
  EventIndex event;
  uint64_t at_ns;
};
using Sends = std::map<UnitId, std::vector<SentAt>>;

uint64_t sent_at_ns(const Sends& sends, EventRef sender) {
  const auto unit = sends.find(sender.unit);
  if (unit == sends.end()) return 0;
  const auto at = std::lower_bound(unit->second.begin(), unit->second.end(), sender.event,
                                   [](const SentAt& sent, EventIndex event) { return sent.event < event; });
  return at != unit->second.end() && at->event == sender.event ? at->at_ns : 0;
}

void add_intervals(const Trace& trace, const UnitRecord& unit, Rdg& graph) {
  auto& out = graph.units[unit.unit];
  for (const auto& record : trace.intervals(unit.unit)) {
    const IntervalExtent extent = interval_extent(trace, unit.unit, record.interval);
    Rdg::Interval interval{extent.first_event, extent.end_event, extent.cpu_ns, startable(record), std::nullopt};
    if (record.kind == CheckpointKind::fork && !record.has_image) interval.birth = unit.parent;
    out.push_back(interval);
  }
}

void add_dependences(const Rdg& graph, EventRef receiver, const Receive& receive, std::vector<Rdg::Dependence>& out) {
  for (const auto& part : receive.parts) {
    if (part.sender.unit == 0) continue;
    const bool same_interval =
        part.sender.unit == receiver.unit && graph.interval_of(part.sender) == graph.interval_of(receiver);
    if (!same_interval) out.push_back({receiver, part.sender, receive.at_ns, 0});
  }
}

// The interval that holds an event, if the graph's cuts leave it in.
Rdg::Interval* interval_holding(Rdg& graph, EventRef event) {
  const auto index = graph.interval_of(event);
  return index ? &graph.units.at(event.unit)[*index] : nullptr;
}

// A recorder that was killed, or had no room, may have written a receive and not its send. What cannot be re-driven for that is cut off: the
// interval ends before the receive. A cut may take away what others received, so this goes on until nothing changes.
void cut_unsatisfiable(Rdg& graph) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [unit, dependences] : graph.unlogged) {
      for (const auto& dependence : dependences) {
        Rdg::Interval* receiver = interval_holding(graph, dependence.receiver);
        if (!receiver || interval_holding(graph, dependence.sender)) continue;
        receiver->end_event = dependence.receiver.event;
        changed = true;
      }
    }
    for (auto& [unit, intervals] : graph.units) {
      for (size_t i = 0; i < intervals.size(); ++i) {
        Rdg::Interval& interval = intervals[i];
        const bool gap = i > 0 && !interval.startable && intervals[i - 1].end_event < interval.first_event;
        const bool unborn = interval.birth && !interval_holding(graph, *interval.birth);
        if ((!gap && !unborn) || interval.end_event == interval.first_event) continue;
        interval.end_event = interval.first_event;
        changed = true;
      }
    }
  }
}

}  // namespace

Result<Rdg> build_graph(const Trace& trace) {
  Rdg graph;
  Sends sends;
  for (const auto& unit : trace.units()) add_intervals(trace, unit, graph);
  for (const auto& unit : trace.units()) {
    auto& unlogged = graph.unlogged[unit.unit];
    auto& sent = sends[unit.unit];
    TRY(trace.for_each_event(unit.unit, 0, trace.event_count(unit.unit), [&](EventIndex index, const Event& event) {
      if (event.send) sent.push_back({index, event.send->at_ns});
      if (event.receive && !event.receive->logged) add_dependences(graph, {unit.unit, index}, *event.receive, unlogged);
      return true;
    }));
  }
  for (auto& [unit, dependences] : graph.unlogged) {
    for (auto& dependence : dependences) dependence.sender_at_ns = sent_at_ns(sends, dependence.sender);
  }
  cut_unsatisfiable(graph);
  return graph;
}

}  // namespace redrive
