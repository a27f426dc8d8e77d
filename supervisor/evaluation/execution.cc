#include "supervisor/evaluation/execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "supervisor/plan/graph.h"
#include "supervisor/plan/restore_cost.h"

namespace redrive {
namespace {

using What = Execution::What;

constexpr uint32_t kNotPlaced = UINT32_MAX;

// A step, not yet in order.
struct Found {
  Execution::Step step;
  EventIndex event = 0;
  uint64_t arrival = 0;
  std::vector<EventRef> senders;
  bool timed = true;
};

class Reader {
 public:
  explicit Reader(const Trace& trace) : trace_(trace) {}

  Result<Execution> read() {
    for (const auto& unit : trace_.units()) TRY(read_unit(unit));
    for (auto& unit : units_) {
      set_times(unit);
      unit.placed.assign(unit.steps.size(), kNotPlaced);
    }
    order();
    execution_.units = static_cast<uint32_t>(units_.size());
    execution_.stub_s = trace_.settings().restore_cost_s;
    return std::move(execution_);
  }

 private:
  struct Unit {
    UnitId id = 0;
    std::vector<Found> steps;
    std::vector<std::pair<EventIndex, size_t>> sends;  // by event: the step
    std::vector<uint32_t> placed;                      // sends only: where each ordered step was placed
    size_t next = 0;                                   // the first that is not ordered yet
    bool waiting = false;
  };

  Result<void> read_unit(const UnitRecord& record) {
    numbers_[record.unit] = units_.size();
    Unit& unit = units_.emplace_back();
    unit.id = record.unit;
    const auto number = static_cast<uint32_t>(units_.size() - 1);
    uint64_t before_ns = 0;
    for (const auto& interval : trace_.intervals(record.unit)) {
      const IntervalExtent extent = interval_extent(trace_, record.unit, interval.interval);
      Found begin;
      begin.step.unit = number;
      begin.step.at_ns = before_ns;
      // A window may begin with any image.
      const bool begins_anew = interval.kind == CheckpointKind::exec || unit.steps.empty();
      const bool is_birth = interval.kind == CheckpointKind::fork && record.parent.unit != 0;
      begin.step.what = is_birth ? What::birth : begins_anew ? What::program : What::checkpoint;
      begin.step.restore_s = restore_s(trace_, record.unit, interval.interval);
      if (begin.step.what == What::birth) {
        begin.step.logged = interval.has_image;
        begin.senders.push_back(record.parent);
      }
      begin.event = extent.first_event;
      unit.steps.push_back(std::move(begin));
      TRY(read_interval(unit, number, record.unit, extent, before_ns));
      before_ns = std::max(before_ns + extent.cpu_ns, unit.steps.back().step.at_ns);
    }
    if (unit.steps.empty()) return {};
    Found end;
    end.step.what = What::end;
    end.step.unit = number;
    end.step.at_ns = before_ns;
    end.event = trace_.event_count(record.unit);
    unit.steps.push_back(std::move(end));
    return {};
  }

  Result<void> read_interval(Unit& unit, uint32_t number, UnitId id, const IntervalExtent& extent, uint64_t before_ns) {
    return trace_.for_each_event(id, extent.first_event, extent.end_event, [&](EventIndex at, const Event& event) {
      // A receive comes before a send of the same event, because what was sent may depend on it.
      if (event.receive && !event.receive->parts.empty()) {
        Found& found = add(unit, number, What::receive, at, before_ns + event.receive->at_ns);
        found.step.message = is_message(id, *event.receive);
        found.step.logged = event.receive->logged;
        found.step.bytes = event.receive->length();
        found.arrival = event.receive->arrival;
        for (const auto& part : event.receive->parts) found.senders.push_back(part.sender);
      }
      if (event.send || event.child_unit) {
        Found& found = add(unit, number, What::send, at, event.send ? before_ns + event.send->at_ns : 0);
        found.timed = event.send.has_value();
        found.step.bytes = event.send ? event.send->length : 0;
        unit.sends.emplace_back(at, unit.steps.size() - 1);
      }
      return true;
    });
  }

  static Found& add(Unit& unit, uint32_t number, What what, EventIndex event, uint64_t at_ns) {
    Found& found = unit.steps.emplace_back();
    found.step.what = what;
    found.step.unit = number;
    found.step.at_ns = at_ns;
    found.event = event;
    return found;
  }

  // Traces without the times of forks: interpolates between the steps around them by the events' numbers. Times must
  // not go back for policies.
  static void set_times(Unit& unit) {
    for (size_t i = 1; i < unit.steps.size(); ++i) {
      uint64_t& at_ns = unit.steps[i].step.at_ns;
      if (unit.steps[i].timed) {
        at_ns = std::max(at_ns, unit.steps[i - 1].step.at_ns);
        continue;
      }
      const Found& before = unit.steps[i - 1];
      const auto after = std::find_if(unit.steps.begin() + static_cast<ptrdiff_t>(i), unit.steps.end(),
                                      [](const Found& found) { return found.timed; });
      const double events = static_cast<double>(std::max<EventIndex>(after->event - before.event, 1));
      const double share = static_cast<double>(unit.steps[i].event - before.event) / events;
      const auto more_ns = static_cast<double>(after->step.at_ns - std::min(after->step.at_ns, before.step.at_ns));
      at_ns = before.step.at_ns + static_cast<uint64_t>(more_ns * share);
    }
  }

  // Orders steps by arrival, each receive after its sends.
  void order() {
    struct Arrival {
      uint64_t arrival;
      size_t unit, step;
    };
    std::vector<Arrival> arrivals;
    for (size_t u = 0; u < units_.size(); ++u) {
      for (size_t i = 0; i < units_[u].steps.size(); ++i) {
        if (units_[u].steps[i].arrival) arrivals.push_back({units_[u].steps[i].arrival, u, i});
      }
    }
    std::sort(arrivals.begin(), arrivals.end(),
              [](const Arrival& a, const Arrival& b) { return a.arrival < b.arrival; });
    for (const auto& arrival : arrivals) take_through(arrival.unit, arrival.step);
    for (size_t u = 0; u < units_.size(); ++u) {
      if (!units_[u].steps.empty()) take_through(u, units_[u].steps.size() - 1);
    }
  }

  void take_through(size_t unit, size_t step) {
    struct Goal {
      size_t unit, step;
    };
    std::vector<Goal> goals{{unit, step}};
    while (!goals.empty()) {
      const Goal goal = goals.back();
      Unit& from = units_[goal.unit];
      from.waiting = false;
      if (from.next > goal.step) {
        goals.pop_back();
        continue;
      }
      Found& found = from.steps[from.next];
      from.waiting = true;
      std::optional<Goal> missing;
      for (const EventRef& sender : found.senders) {
        const auto wanted = find(sender);
        // The wanted unit waits for this one already, or this is a later step of the same unit. No execution was like
        // that, so the trace is damaged.
        if (wanted && units_[wanted->first].next <= wanted->second && !units_[wanted->first].waiting) {
          missing = Goal{wanted->first, wanted->second};
        }
      }
      if (missing) {
        goals.push_back(*missing);
      } else {
        take(found);
        ++from.next;
      }
    }
  }

  std::optional<std::pair<size_t, size_t>> find(EventRef sender) const {
    const auto number = numbers_.find(sender.unit);
    if (number == numbers_.end()) return std::nullopt;
    const auto& sends = units_[number->second].sends;
    const auto step = std::lower_bound(sends.begin(), sends.end(), std::pair(sender.event, size_t{0}));
    if (step == sends.end() || step->first != sender.event) return std::nullopt;
    return std::pair(number->second, step->second);
  }

  void take(Found& found) {
    Execution::Step& step = found.step;
    step.first_sender = static_cast<uint32_t>(execution_.senders.size());
    for (const EventRef& sender : found.senders) {
      const auto place = find(sender);
      const uint32_t placed = place ? units_[place->first].placed[place->second] : kNotPlaced;
      if (placed == kNotPlaced) {  // what it needs is not there
        execution_.senders.resize(step.first_sender);
        if (step.what == What::receive) return;
        break;
      }
      execution_.senders.push_back(placed);
    }
    step.sender_count = static_cast<uint32_t>(execution_.senders.size()) - step.first_sender;
    if (step.what == What::send) {
      units_[step.unit].placed[units_[step.unit].next] = static_cast<uint32_t>(execution_.steps.size());
    }
    execution_.steps.push_back(step);
    execution_.events.push_back({units_[step.unit].id, found.event});
  }

  const Trace& trace_;
  std::map<UnitId, size_t> numbers_;
  std::vector<Unit> units_;
  Execution execution_;
};

}  // namespace

Result<Execution> read_execution(const Trace& trace) { return Reader(trace).read(); }

std::vector<uint64_t> elapsed_ns(const Execution& execution) {
  struct Unit {
    uint64_t at_ns = 0, elapsed_ns = 0;
  };
  std::vector<Unit> units(execution.units);
  std::vector<uint64_t> out;
  out.reserve(execution.steps.size());
  for (const Execution::Step& step : execution.steps) {
    Unit& unit = units[step.unit];
    unit.elapsed_ns += step.at_ns - unit.at_ns;
    unit.at_ns = step.at_ns;
    for (const uint32_t sender : execution.senders_of(step)) unit.elapsed_ns = std::max(unit.elapsed_ns, out[sender]);
    out.push_back(unit.elapsed_ns);
  }
  return out;
}

}  // namespace redrive
