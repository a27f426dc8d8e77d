#include "supervisor/live/wanted_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "interceptors/payload.h"

namespace redrive {

void WantedInputs::see(EventRef call, const std::vector<Span>& read, const Memory& memory) {
  Read found;
  for (const Span& span : read) {
    Bytes bytes(span.length);
    if (!memory.read(span.address, bytes.data(), bytes.size())) bytes.clear();
    found.pieces.push_back(std::move(bytes));
  }
  found.payload = read_payload(read, memory);
  const Lock lock(mutex_);
  found_[call] = std::move(found);
}

Result<void> WantedInputs::find(const SetRun& run) {
  // Of each unit's interval, up to its last wanted call.
  std::map<std::pair<UnitId, IntervalIndex>, EventIndex> ends;
  for (const EventRef& call : wanted_) {
    const auto interval = run.graph.rdg().interval_of(call);
    if (!interval) return Error{fmt::format("unit {} cannot be re-driven up to event {}", call.unit, call.event)};
    EventIndex& end = ends[{call.unit, *interval}];
    end = std::max(end, call.event + 1);
  }
  if (ends.empty()) return {};
  std::vector<PlanRequest> requests;
  for (const auto& [interval, end] : ends) requests.push_back({interval.first, interval.second, end});
  ASSIGN_OR_RETURN(const PlanResult planned, run.graph.plan_together(requests));
  if (!planned.plan) return Error{describe(*planned.error)};
  ReplayerOptions options;
  options.watch = this;
  ASSIGN_OR_RETURN(const auto outcomes,
                   run_set(
                       run, *planned.plan, [&](size_t) { return options; }, Start::as_there_is_room));
  for (const auto& outcome : outcomes.members) {
    if (!outcome) return outcome.error();
    if (outcome->divergence) {
      print_divergence(run.trace, *outcome->divergence, fmt::format("{}", outcome->divergence->unit));
      return Error{"what calls have read cannot be found out", Status::divergence};
    }
  }
  const Lock lock(mutex_);
  for (const EventRef& call : wanted_) {
    if (!found_.contains(call)) {
      return Error{fmt::format("event {} of unit {} was re-driven, but not seen", call.event, call.unit)};
    }
  }
  wanted_.clear();
  return {};
}

const WantedInputs::Read* WantedInputs::of(EventRef call) const {
  const Lock lock(mutex_);
  const auto found = found_.find(call);
  return found == found_.end() ? nullptr : &found->second;
}

std::string WantedInputs::text(EventRef call, size_t piece) const {
  const Read* const read = of(call);
  if (!read || read->pieces.size() <= piece) return {};
  const Bytes& bytes = read->pieces[piece];
  return {bytes.begin(), std::find(bytes.begin(), bytes.end(), 0)};
}

}  // namespace redrive
