#include "supervisor/plan/breakpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "checkpoint/unit_state.h"

namespace redrive {
namespace {

// The part of an execution that has happened; it grows backwards along what it depends on. Each need is examined once.
class Past {
 public:
  Past(const Communication& communication, const std::map<UnitId, EventIndex>& listed)
      : communication_(&communication), listed_(&listed) {
    for (const auto& [unit, event] : *listed_) done_[unit].events = event;
  }

  EventIndex done(UnitId unit) const {
    const auto found = done_.find(unit);
    return found == done_.end() ? 0 : found->second.events;
  }

  // Adds what the events before a listed unit's own event depend on. Returns an event among these that a listed unit
  // has yet to do, if there is one.
  std::optional<EventRef> add_listed(UnitId unit) { return follow({unit}); }

  // Adds an event of another unit, and everything that happened before it. Returns the same.
  std::optional<EventRef> add(EventRef event) {
    std::vector<UnitId> grown;
    if (!reach(event, grown)) return event;
    return follow(std::move(grown));
  }

 private:
  struct Done {
    EventIndex events = 0;
    bool born = false;  // its birth was examined
    size_t needs = 0;   // how many were examined
  };

  // False if a listed unit has yet to do the event.
  bool reach(EventRef event, std::vector<UnitId>& grown) {
    const auto listed = listed_->find(event.unit);
    if (listed != listed_->end()) return event.event < listed->second;
    Done& done = done_[event.unit];
    if (event.event < done.events) return true;
    done.events = event.event + 1;
    grown.push_back(event.unit);
    return true;
  }

  std::optional<EventRef> follow(std::vector<UnitId> grown) {
    while (!grown.empty()) {
      const UnitId unit = grown.back();
      grown.pop_back();
      const Communication::Unit& its = communication_->units.at(unit);
      Done& done = done_.at(unit);
      const EventIndex events = done.events;
      if (events > 0 && !std::exchange(done.born, true) && its.birth && !reach(*its.birth, grown)) return its.birth;
      for (; done.needs < its.needs.size() && its.needs[done.needs].event < events; ++done.needs) {
        if (!reach(its.needs[done.needs].sender, grown)) return its.needs[done.needs].sender;
      }
    }
    return std::nullopt;
  }

  const Communication* communication_;
  const std::map<UnitId, EventIndex>* listed_;
  std::map<UnitId, Done> done_;
};

Result<std::map<UnitId, EventIndex>> listed_units(const Communication& communication,
                                                  const std::vector<EventRef>& events) {
  std::map<UnitId, EventIndex> listed;
  for (const EventRef& at : events) {
    const auto unit = communication.units.find(at.unit);
    if (unit == communication.units.end()) return Error{fmt::format("there is no unit {}", at.unit)};
    if (at.event >= unit->second.events) {
      return Error{fmt::format("unit {} has no event {}: it has {}", at.unit, at.event,
                               unit->second.events == 0 ? "none" : fmt::format("0 to {}", unit->second.events - 1))};
    }
    if (!listed.emplace(at.unit, at.event).second) {
      return Error{fmt::format("unit {} cannot stand before two events", at.unit)};
    }
  }
  return listed;
}

// What the event itself depends on: its senders and, if it is the unit's first, the unit's birth.
std::vector<EventRef> own_needs(const Communication::Unit& unit, EventIndex event) {
  std::vector<EventRef> own;
  if (event == 0 && unit.birth) own.push_back(*unit.birth);
  const auto first = std::lower_bound(unit.needs.begin(), unit.needs.end(), event,
                                      [](const auto& need, EventIndex wanted) { return need.event < wanted; });
  for (auto need = first; need != unit.needs.end() && need->event == event; ++need) own.push_back(need->sender);
  return own;
}

Error happened_before(EventRef missing, const std::map<UnitId, EventIndex>& listed, UnitId later) {
  const EventIndex earlier = listed.at(missing.unit);
  if (missing.unit == later) {
    return Error{fmt::format("event {} of unit {} happened before event {} of the same unit: the trace is damaged",
                             missing.event, later, listed.at(later)),
                 Status::damaged};
  }
  return Error{fmt::format(
      "{}@{} happened before {}@{}{}: no breakpoint has both", missing.unit, earlier, later, listed.at(later),
      missing.event == earlier ? "" : fmt::format(" (as did event {} of unit {})", missing.event, missing.unit))};
}

}  // namespace

Result<Breakpoint> causal_breakpoint(const Communication& communication, const std::vector<EventRef>& events) {
  ASSIGN_OR_RETURN(const auto listed, listed_units(communication, events));
  Past past(communication, listed);
  for (const auto& [unit, event] : listed) {
    if (const auto missing = past.add_listed(unit)) return happened_before(*missing, listed, unit);
  }
  for (const auto& [unit, event] : listed) {
    for (const EventRef& sender : own_needs(communication.units.at(unit), event)) {
      Past with_sender = past;
      if (!with_sender.add(sender)) past = std::move(with_sender);
    }
  }
  Breakpoint breakpoint;
  for (const auto& [unit, its] : communication.units) {
    Breakpoint::Place& place = breakpoint.units[unit];
    place.event = past.done(unit);
    const bool born = !its.birth || its.birth->event < past.done(its.birth->unit);
    place.started = place.event > 0 || (listed.contains(unit) && born);
  }
  return breakpoint;
}

Result<Breakpoint> later_breakpoint(const Communication& communication, const Breakpoint& from,
                                    const std::vector<EventRef>& events) {
  ASSIGN_OR_RETURN(Breakpoint later, causal_breakpoint(communication, events));
  for (const EventRef& at : events) {
    const EventIndex stands = from.units.at(at.unit).event;
    if (at.event < stands) {
      return Error{
          fmt::format("unit {} already stands before event {}: it cannot go back to {}", at.unit, stands, at.event)};
    }
  }
  for (auto& [unit, place] : later.units) {
    const Breakpoint::Place& before = from.units.at(unit);
    place.event = std::max(place.event, before.event);
    place.started |= before.started;
  }
  return later;
}

namespace {

// The processes that joined the unit where this interval begins.
Result<std::set<int32_t>> joined_there(const Trace& trace, const IntervalRecord& interval) {
  std::set<int32_t> pids;
  if (interval.kind != CheckpointKind::image || !interval.has_image) return pids;
  ASSIGN_OR_RETURN(const Image image, trace.image(interval.unit, interval.interval));
  ASSIGN_OR_RETURN(const UnitState state, read_state(image.header, interval.unit, interval.interval));
  for (const auto& process : state.processes) {
    if (process.process >= state.first_joined_process) pids.insert(process.pid);
  }
  return pids;
}

// What a unit does after others have joined it depends on everything that these have done.
Result<void> add_joins(const Trace& trace, const UnitRecord& unit, std::vector<Communication::Need>& needs) {
  if (unit.joined.empty()) return {};
  for (const auto& interval : trace.intervals(unit.unit)) {
    ASSIGN_OR_RETURN(const std::set<int32_t> pids, joined_there(trace, interval));
    for (const auto& other : trace.units()) {
      const bool joined = std::find(unit.joined.begin(), unit.joined.end(), other.unit) != unit.joined.end();
      const EventIndex events = trace.event_count(other.unit);
      if (joined && pids.contains(other.pid) && events > 0) {
        needs.push_back({interval.first_event, {other.unit, events - 1}, true});
      }
    }
  }
  return {};
}

Result<void> add_unit(const Trace& trace, const UnitRecord& record, Communication& communication) {
  Communication::Unit& unit = communication.units[record.unit];
  const auto needs = [&](EventIndex at, const Receive& receive) {
    for (const auto& part : receive.parts) {
      if (part.sender.unit != 0 && part.sender.unit != record.unit) unit.needs.push_back({at, part.sender, false});
    }
  };
  unit.events = trace.event_count(record.unit);
  if (record.parent.unit) unit.birth = record.parent;
  TRY(trace.for_each_event(record.unit, 0, unit.events, [&](EventIndex at, const Event& event) {
    if (event.receive) needs(at, *event.receive);
    return true;
  }));
  TRY(add_joins(trace, record, unit.needs));
  std::stable_sort(unit.needs.begin(), unit.needs.end(),
                   [](const auto& a, const auto& b) { return a.event < b.event; });
  return {};
}

// A recorder that was killed may have written a receive but not its send.
void leave_out_what_is_not_held(Communication& communication) {
  const auto held = [&](EventRef& sender) {
    const auto unit = communication.units.find(sender.unit);
    if (unit == communication.units.end() || unit->second.events == 0) return false;
    sender.event = std::min(sender.event, unit->second.events - 1);
    return true;
  };
  for (auto& [id, unit] : communication.units) {
    std::erase_if(unit.needs, [&](Communication::Need& need) { return !held(need.sender); });
    if (unit.birth && !held(*unit.birth)) unit.birth.reset();
  }
}

}  // namespace

Result<Communication> read_communication(const Trace& trace) {
  Communication communication;
  for (const auto& unit : trace.units()) TRY(add_unit(trace, unit, communication));
  leave_out_what_is_not_held(communication);
  return communication;
}

}  // namespace redrive
