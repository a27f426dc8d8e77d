#include "supervisor/plan/recovery_line.h"

#include <fmt/format.h>
namespace redrive {
namespace {

Result<Plan> planned(DependenceGraph& graph, const std::vector<PlanRequest>& requests) {
  ASSIGN_OR_RETURN(PlanResult result, graph.plan_together(requests));
  if (!result.plan) return Error{"the breakpoint cannot be re-driven: " + describe(*result.error)};
  for (size_t i = 0; i < requests.size(); ++i) {
    const PlannedInterval& planned = result.plan->replay_set[i];
    if (requests[i].until && planned.requisite_event > *requests[i].until) {
      return Error{fmt::format("unit {} cannot stand before event {}: others need its event {}", planned.unit,
                               *requests[i].until, planned.requisite_event - 1),
                   Status::damaged};
    }
  }
  return std::move(*result.plan);
}

Error cannot_get_to(EventRef event) {
  return Error{fmt::format(
      "unit {} cannot be re-driven up to event {}: the recorder was stopped before it wrote what that needs",
      event.unit, event.event)};
}

// An interval that begins with a join contains the joined threads, whether their events have happened or not.
Result<void> check_joins(const Communication& communication, const Breakpoint& breakpoint, UnitId unit) {
  const EventIndex event = breakpoint.units.at(unit).event;
  for (const auto& need : communication.units.at(unit).needs) {
    if (!need.join || need.event != event || need.sender.event < breakpoint.units.at(need.sender.unit).event) continue;
    return Error{
        fmt::format("unit {} joins unit {} before event {}, where the latter would stand, but has not got there yet",
                    need.sender.unit, unit, event)};
  }
  return {};
}

}  // namespace

Result<RecoveryLine> recovery_line(const Communication& communication, DependenceGraph& graph,
                                   const Breakpoint& breakpoint) {
  RecoveryLine line;
  for (const auto& [unit, place] : breakpoint.units) {
    if (!place.started || place.event == communication.units.at(unit).events) continue;
    const auto interval = graph.rdg().interval_of({unit, place.event});
    if (!interval) return cannot_get_to({unit, place.event});
    TRY(check_joins(communication, breakpoint, unit));
    line.standing.push_back({unit, *interval, place.event});
  }
  if (line.standing.empty()) return Error{"no unit stands there: none has been started"};
  ASSIGN_OR_RETURN(line.plan, planned(graph, line.standing));
  return line;
}

Result<RecoveryLine> line_to(DependenceGraph& graph, EventRef event) {
  const auto interval = graph.rdg().interval_of(event);
  if (!interval) return cannot_get_to(event);
  ASSIGN_OR_RETURN(PlanResult planned, graph.plan(event.unit, *interval, event.event));
  if (!planned.plan) return Error{describe(*planned.error)};
  return RecoveryLine{{{event.unit, *interval, event.event}}, std::move(*planned.plan)};
}

Result<Plan> plan_to(const RecoveryLine& line, const Communication& communication, DependenceGraph& graph,
                     const Breakpoint& from, const Breakpoint& later) {
  std::vector<PlanRequest> requests = line.standing;
  std::map<UnitId, PlanRequest*> by_unit;
  for (PlanRequest& request : requests) by_unit[request.unit] = &request;
  for (const auto& [unit, place] : later.units) {
    const auto standing = by_unit.find(unit);
    if (standing == by_unit.end()) {
      if (place.event == from.units.at(unit).event) continue;
      return Error{
          fmt::format("unit {} would have to stand before event {}, but does not run here", unit, place.event)};
    }
    const EventIndex end = graph.rdg().units.at(unit).at(standing->second->interval).end_event;
    // At the end of an interval the next one begins, except at the end of the unit's last interval.
    if (place.event > end || (place.event == end && end != communication.units.at(unit).events)) {
      return Error{fmt::format("unit {} would have to stand before event {}, but its interval ends before event {}",
                               unit, place.event, end)};
    }
    standing->second->until = place.event;
  }
  return planned(graph, requests);
}

Result<Plan> plan_to_ends(const RecoveryLine& line, DependenceGraph& graph) {
  std::vector<PlanRequest> requests = line.standing;
  for (PlanRequest& request : requests) request.until.reset();
  return planned(graph, requests);
}

}  // namespace redrive
