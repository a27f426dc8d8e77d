#include "supervisor/plan/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/parallel.h"

namespace redrive {

IntervalExtent interval_extent(const Trace& trace, UnitId unit, IntervalIndex interval) {
  const auto& intervals = trace.intervals(unit);
  ASSERT(interval < intervals.size());
  const EventIndex first_event = intervals[interval].first_event;
  if (const IntervalEnd* end = trace.interval_end(unit, interval)) return {first_event, end->end_event, end->cpu_ns};
  const bool last = interval + 1 == intervals.size();
  return {first_event, last ? trace.event_count(unit) : intervals[interval + 1].first_event, 0};
}

Result<void> check_until(const Trace& trace, UnitId unit, IntervalIndex interval, EventIndex until) {
  const IntervalExtent extent = interval_extent(trace, unit, interval);
  if (until >= extent.first_event && until <= extent.end_event) return {};
  return Error{fmt::format("event {} is not in interval {}: its events are {} up to, not including, {}", until,
                           interval, extent.first_event, extent.end_event)};
}

bool is_cut(const Trace& trace, const Rdg& graph, UnitId unit, IntervalIndex interval) {
  const Rdg::Interval& held = graph.units.at(unit)[interval];
  return !held.reachable || held.end_event < interval_extent(trace, unit, interval).end_event;
}

bool ends_in_image(const Trace& trace, const Rdg& graph, UnitId unit, IntervalIndex interval) {
  const auto& intervals = trace.intervals(unit);
  const size_t next = interval + 1;
  return next < intervals.size() && intervals[next].kind == CheckpointKind::image && intervals[next].has_image &&
         graph.units.at(unit)[interval].end_event == intervals[next].first_event;
}

bool startable(const IntervalRecord& interval) { return interval.kind == CheckpointKind::fork || interval.has_image; }

bool is_message(UnitId receiver, const Receive& receive) {
  return std::any_of(receive.parts.begin(), receive.parts.end(),
                     [&](const MessagePart& part) { return part.sender.unit != 0 && part.sender.unit != receiver; });
}

namespace {

// Whether other threads ran at this place in user code, so that only the interval's image knows the state.
bool is_turn(const Event& event) {
  return event.kind == EventKind::preemption && static_cast<Preempted>(event.args[0]) == Preempted::turn;
}

// The events before which other units were joined with a unit. Only the image of the interval that begins there has
// them.
std::set<EventRef> joins_of(const Trace& trace) {
  std::set<EventRef> found;
  for (const Join& join : trace.joins()) {
    if (join.joined != 0) found.insert({join.unit, join.event});
  }
  return found;
}

void add_intervals(const Trace& trace, const UnitRecord& unit, const std::set<EventRef>& joins, Rdg& graph) {
  auto& out = graph.units[unit.unit];
  for (const auto& record : trace.intervals(unit.unit)) {
    const IntervalExtent extent = interval_extent(trace, unit.unit, record.interval);
    const bool is_exec = record.kind == CheckpointKind::exec;
    Rdg::Interval interval{extent.first_event, extent.end_event, extent.cpu_ns,
                           startable(record),  std::nullopt,     std::nullopt};
    if (record.kind == CheckpointKind::fork && !record.has_image) interval.birth = unit.parent;
    // If a finished recording lacks the image of a program, that is an error, which the replay reports.
    interval.startable |= is_exec && trace.finished();
    if (const IntervalEnd* end = trace.interval_end(unit.unit, record.interval)) {
      interval.clock_error_ns = end->clock_error_ns;
    }
    interval.reachable =
        interval.startable || trace.finished() || !(is_exec || joins.contains({record.unit, record.first_event}));
    out.push_back(interval);
  }
}

void add_dependences(const Rdg& graph, EventRef receiver, const Receive& receive, std::vector<Rdg::Dependence>& out) {
  for (const auto& part : receive.parts) {
    if (part.sender.unit == 0) continue;
    const bool same_interval =
        part.sender.unit == receiver.unit && graph.interval_of(part.sender) == graph.interval_of(receiver);
    if (!same_interval) out.push_back({receiver, part.sender, receive.at_ns, 0, part.length});
  }
}

// The interval that holds an event, unless the graph's cuts have removed it.
Rdg::Interval* interval_holding(Rdg& graph, EventRef event) {
  const auto index = graph.interval_of(event);
  return index ? &graph.units.at(event.unit)[*index] : nullptr;
}

// An interval without a checkpoint of its own is executed from the one before it, which must be executed to its end,
// and a child from its fork. If this is impossible, so is everything in the interval. Returns whether this was newly
// found of any interval.
bool cut_unreachable(Rdg& graph) {
  bool changed = false;
  for (auto& [unit, intervals] : graph.units) {
    for (size_t i = 0; i < intervals.size(); ++i) {
      Rdg::Interval& interval = intervals[i];
      const auto cut_before = [&](const Rdg::Interval& before) {
        return !before.reachable || before.end_event < interval.first_event;
      };
      if (!interval.startable && i > 0 && cut_before(intervals[i - 1])) interval.reachable = false;
      if (interval.birth && !interval_holding(graph, *interval.birth)) interval.reachable = false;
      if (interval.reachable || interval.end_event == interval.first_event) continue;
      interval.end_event = interval.first_event;
      changed = true;
    }
  }
  return changed;
}

// A recorder that was killed, or that ran out of space, may have written a receive but not its send. What cannot be
// re-driven because of that is cut off: the interval ends before the receive. A cut may take away what others received,
// so this is repeated until nothing changes.
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
    changed |= cut_unreachable(graph);
  }
}

}  // namespace

Result<DependenceGraph> DependenceGraph::open(const Trace& trace) {
  DependenceGraph graph(trace);
  const std::set<EventRef> joins = joins_of(trace);
  for (const auto& unit : trace.units()) add_intervals(trace, unit, joins, graph.rdg_);
  graph.find_children();
  if (trace.finished()) return graph;
  TRY(graph.read_all());
  cut_unsatisfiable(graph.rdg_);
  return graph;
}

void DependenceGraph::find_children() {
  for (const auto& [unit, intervals] : rdg_.units) {
    if (intervals.empty() || !intervals.front().birth) continue;
    const EventRef birth = *intervals.front().birth;
    if (const auto interval = rdg_.interval_of(birth)) children_[{birth.unit, *interval}].push_back(unit);
  }
}

Result<void> DependenceGraph::read_all() {
  std::vector<Place> all;
  for (const auto& [unit, intervals] : rdg_.units) {
    for (IntervalIndex i = 0; i < intervals.size(); ++i) all.emplace_back(unit, i);
  }
  return read(std::move(all));
}

Result<void> DependenceGraph::read(std::vector<Place> places) {
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  std::erase_if(places, [this](const Place& place) { return read_.contains(place); });
  constexpr size_t kAtOnce = 64;  // so that little is in memory twice
  for (size_t first = 0; first < places.size(); first += kAtOnce) {
    const std::span<const Place> some(places.begin() + static_cast<ptrdiff_t>(first),
                                      std::min(kAtOnce, places.size() - first));
    std::vector<std::optional<Result<Content>>> contents(some.size());
    for_each_in_parallel(some.size(), [&](size_t i) { contents[i] = content_of(some[i]); });
    for (size_t i = 0; i < some.size(); ++i) {
      if (!*contents[i]) return contents[i]->error();
      add(some[i], std::move(**contents[i]));
    }
  }
  for (const Place& place : places) note_send_times(place);
  return {};
}

Result<DependenceGraph::Content> DependenceGraph::content_of(const Place& place) const {
  const UnitId unit = place.first;
  const Rdg::Interval& interval = rdg_.units.at(unit).at(place.second);
  Content content;
  TRY(trace_.for_each_event(unit, interval.first_event, interval.end_event, [&](EventIndex at, const Event& event) {
    if (at == interval.first_event) content.begins_with_turn = is_turn(event);
    if (event.send) content.sent.emplace_back(at, event.send->at_ns);
    if (!event.receive || event.receive->logged) return true;
    add_dependences(rdg_, {unit, at}, *event.receive, content.unlogged);
    for (const auto& part : event.receive->parts) {
      const uint64_t most = std::numeric_limits<uint64_t>::max() - part.length;
      content.needed.push_back({at, part.sender, std::min(part.offset, most) + part.length});
    }
    return true;
  }));
  return content;
}

void DependenceGraph::add(const Place& place, Content content) {
  const auto& [unit, index] = place;
  Rdg::Interval& interval = rdg_.units.at(unit).at(index);
  if (!trace_.finished() && content.begins_with_turn && !interval.startable) interval.reachable = false;
  auto& unlogged = rdg_.unlogged[unit];
  const auto at = unlogged.begin() + static_cast<ptrdiff_t>(first_at(unlogged, interval.first_event));
  unlogged.insert(at, content.unlogged.begin(), content.unlogged.end());
  read_[place] = std::move(content.needed);
  sends_[place] = std::move(content.sent);
}

std::vector<DependenceGraph::Needed> DependenceGraph::needed(const PlannedInterval& planned) const {
  std::vector<Needed> all;
  for (IntervalIndex i = planned.start; i <= planned.interval; ++i) {
    for (const Needed& needed : read_.at({planned.unit, i})) {
      if (needed.receiver < planned.requisite_event) all.push_back(needed);
    }
  }
  return all;
}

// Finds the times of sends, about in the order of each unit's sends.
class DependenceGraph::SendTimes {
 public:
  explicit SendTimes(const std::map<Place, Sent>& sends) : sends_(sends) {}

  // 0 if it is not known; none if its interval has not been read.
  std::optional<uint64_t> at_ns(const Place& interval, EventIndex sender) {
    const auto sent = sends_.find(interval);
    if (sent == sends_.end()) return std::nullopt;
    return sent_at_ns(sent->second, sender, last_[interval]);
  }

 private:
  // The sender is looked for from this place on, which becomes its place.
  static uint64_t sent_at_ns(const Sent& sent, EventIndex sender, size_t& place) {
    const auto is_before = [](const auto& at, EventIndex wanted) { return at.first < wanted; };
    if (place >= sent.size() || sent[place].first > sender) place = 0;
    size_t end = place;
    for (size_t step = 1; end < sent.size() && sent[end].first < sender; step *= 2) place = end, end += step;
    const auto first = sent.begin() + static_cast<ptrdiff_t>(place);
    const auto last = sent.begin() + static_cast<ptrdiff_t>(std::min(end, sent.size()));
    place = static_cast<size_t>(std::lower_bound(first, last, sender, is_before) - sent.begin());
    return place < sent.size() && sent[place].first == sender ? sent[place].second : 0;
  }

  const std::map<Place, Sent>& sends_;
  std::map<Place, size_t> last_;  // the places of those that were found last
};

// The interval was read. Times are noted wherever both a send and what depends on it have been read now.
void DependenceGraph::note_send_times(const Place& read) {
  SendTimes times(sends_);
  const auto note = [&](Rdg::Dependence& dependence) {
    const auto interval = rdg_.interval_of(dependence.sender);
    if (!interval) return;
    const Place sender{dependence.sender.unit, *interval};
    if (const auto at_ns = times.at_ns(sender, dependence.sender.event)) {
      dependence.sender_at_ns = *at_ns;
      return;
    }
    auto& awaiting = awaiting_[sender];
    if (awaiting.empty() || awaiting.back() != dependence.receiver) awaiting.push_back(dependence.receiver);
  };
  const auto& [unit, index] = read;
  const Rdg::Interval& interval = rdg_.units.at(unit).at(index);
  auto& own = rdg_.unlogged.at(unit);
  for (size_t i = first_at(own, interval.first_event); i < own.size(); ++i) {
    if (own[i].receiver.event >= interval.end_event) break;
    note(own[i]);
  }
  if (const auto waiting = awaiting_.extract(read)) {
    for (const EventRef receiver : waiting.mapped()) {
      auto& unlogged = rdg_.unlogged.at(receiver.unit);
      for (size_t i = first_at(unlogged, receiver.event); i < unlogged.size(); ++i) {
        if (unlogged[i].receiver != receiver) break;
        if (unlogged[i].sender.unit == unit) note(unlogged[i]);
      }
    }
  }
  const auto born = children_.find(read);
  if (born == children_.end()) return;
  for (const UnitId child : born->second) {
    Rdg::Interval& first = rdg_.units.at(child).front();
    if (const auto at_ns = times.at_ns(read, first.birth->event); at_ns && *at_ns > 0) first.birth_at_ns = at_ns;
  }
}

Result<PlanResult> DependenceGraph::plan(UnitId unit, IntervalIndex interval, std::optional<EventIndex> until) {
  const PlanRequest request{unit, interval, until};
  return plan_together({&request, 1});
}

Result<PlanResult> DependenceGraph::plan_together(std::span<const PlanRequest> requests) {
  std::vector<Place> requested;
  for (const PlanRequest& request : requests) requested.emplace_back(request.unit, request.interval);
  TRY(read(std::move(requested)));
  constexpr int kRounds = 16;  // then all is read: each plan is made anew, and a chain of intervals may be very long
  for (int round = 0;; ++round) {
    PlanResult result = redrive::plan_together(rdg_, requests);
    if (!result.plan) return result;
    std::vector<Place> executed;
    for (const auto& planned : result.plan->replay_set) {
      for (IntervalIndex i = planned.start; i <= planned.interval; ++i) executed.emplace_back(planned.unit, i);
    }
    const size_t before = read_.size();
    TRY(read(std::move(executed)));
    if (read_.size() == before) return result;
    // What cannot be read elsewhere may not be needed.
    if (round == kRounds) static_cast<void>(static_cast<bool>(read_all()));
  }
}

}  // namespace redrive
