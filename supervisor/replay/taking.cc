#include "supervisor/replay/taking.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "base/text.h"
#include "logstore/trace_additions.h"

namespace redrive {
namespace {

// ---- What has to be executed

// A part of a unit that is executed from one checkpoint, up to the last interval or payload that is missing.
struct Stretch {
  UnitId unit = 0;
  IntervalIndex last = 0;  // interval
  EventIndex until = 0;    // one past the last event
};

std::vector<Stretch> stretches_of(const Trace& trace, const Rdg& graph, const Missing& missing) {
  std::map<Checkpoint, Stretch> by_start;
  const auto need = [&](UnitId unit, IntervalIndex interval, EventIndex until) {
    const auto& intervals = trace.intervals(unit);
    IntervalIndex start = interval;
    while (start > 0 && !startable(intervals[start])) --start;
    Stretch& stretch = by_start[{unit, start}];
    stretch.unit = unit;
    stretch.last = std::max(stretch.last, interval);
    stretch.until = std::max(stretch.until, until);
  };
  for (const auto& [unit, interval] : missing.images) {
    // Its first event is not executed, but the program must reach it.
    need(unit, interval, trace.intervals(unit)[interval].first_event + 1);
  }
  for (const auto& event : missing.payloads) need(event.unit, graph.interval_of(event).value(), event.event + 1);
  std::vector<Stretch> all;
  for (const auto& [start, stretch] : by_start) all.push_back(stretch);
  return all;
}

// Sets of intervals that are independent of each other, each closed under dependences.
Result<std::vector<std::vector<PlannedInterval>>> sets_of(DependenceGraph& graph,
                                                          const std::vector<Stretch>& stretches) {
  std::map<Checkpoint, PlannedInterval> members;
  std::map<Checkpoint, Checkpoint> above;
  const std::function<Checkpoint(Checkpoint)> top = [&](Checkpoint at) {
    return above.at(at) == at ? at : above[at] = top(above.at(at));
  };
  for (const auto& stretch : stretches) {
    ASSIGN_OR_RETURN(const PlanResult planned, graph.plan(stretch.unit, stretch.last, stretch.until));
    if (!planned.plan) {
      return Error{fmt::format("unit {} cannot be re-driven up to event {}: {}", stretch.unit, stretch.until,
                               describe(*planned.error))};
    }
    std::optional<Checkpoint> first;
    for (const auto& member : planned.plan->replay_set) {
      const Checkpoint start{member.unit, member.start};
      above.try_emplace(start, start);
      const auto [known, fresh] = members.try_emplace(start, member);
      if (!fresh && known->second.requisite_event < member.requisite_event) known->second = member;
      if (first) above[top(start)] = top(*first);
      if (!first) first = start;
    }
  }
  std::map<Checkpoint, std::vector<PlannedInterval>> by_top;
  for (const auto& [start, member] : members) by_top[top(start)].push_back(member);
  std::vector<std::vector<PlannedInterval>> sets;
  for (auto& [unused, set] : by_top) sets.push_back(std::move(set));
  return sets;
}

// ---- Taking it

class Adding : public Preparation {
 public:
  Adding(const Missing& missing, TraceAdditions& additions, const std::function<void(const Taken&)>& advance)
      : missing_(missing), additions_(additions), advance_(advance) {}

  bool wants_image(UnitId unit, IntervalIndex interval) const override {
    return missing_.images.contains({unit, interval});
  }
  Result<void> add_image(UnitId unit, IntervalIndex interval, const ReadImage& read) override {
    TRY(additions_.add_image(unit, interval, read));
    const Lock lock(mutex_);
    ++taken_.images;
    advance_(taken_);
    return {};
  }
  bool wants_payload(EventRef receiver) const override { return missing_.payloads.contains(receiver); }
  Result<void> add_payload(EventRef receiver, const Bytes& payload) override {
    TRY(additions_.add_payload(receiver, payload));
    const Lock lock(mutex_);
    ++taken_.payloads;
    taken_.payload_bytes += payload.size();
    return {};
  }

  Taken taken() const {
    const Lock lock(mutex_);
    return taken_;
  }

 private:
  const Missing& missing_;
  TraceAdditions& additions_;
  const std::function<void(const Taken&)>& advance_;
  mutable Mutex mutex_;
  Taken taken_ GUARDED_BY(mutex_);
};

Result<void> execute(SetRun run, const std::vector<PlannedInterval>& set, Adding& adding) {
  run.keep = PayloadTable::Keep::until_the_end;  // what is wanted of payloads is read after they were received
  Plan plan;
  plan.replay_set = set;
  ASSIGN_OR_RETURN(const auto outcomes, run_set(
                                            run, plan,
                                            [&](size_t) {
                                              ReplayerOptions how;
                                              how.preparation = &adding;
                                              return how;
                                            },
                                            Start::as_there_is_room));
  std::optional<Error> error;
  for (const auto& outcome : outcomes.members) {
    if (!outcome && !error) error = outcome.error();
    if (!outcome || !outcome->divergence) continue;
    const Divergence& d = *outcome->divergence;
    return Error{
        fmt::format("divergence in unit {} ({}), event {}: expected {}, found {}; see `redrive replay {} {}:{}`",
                    d.unit, run.trace.unit_name(d.unit), d.event, d.expected, d.found,
                    shell_quoted(run.trace.directory()), d.unit, d.interval),
        Status::divergence};
  }
  return error ? Result<void>(*error) : Result<void>();
}

}  // namespace

Result<Taken> take(const SetRun& run, const Missing& missing, const Settings& settings,
                   const std::function<void(const Taken&)>& advance) {
  ASSIGN_OR_RETURN(const auto additions, TraceAdditions::begin(run.trace));
  ASSIGN_OR_RETURN(const auto sets, sets_of(run.graph, stretches_of(run.trace, run.graph.rdg(), missing)));
  Adding adding(missing, *additions, advance);
  for (const auto& set : sets) {
    if (const auto executed = execute(run, set, adding); !executed) {
      TRY(additions->publish());
      return executed.error();
    }
    advance(adding.taken());
  }
  const Taken taken = adding.taken();
  if (taken.images == missing.images.size() && taken.payloads == missing.payloads.size()) {
    TRY(additions->finish(settings));
    return taken;
  }
  TRY(additions->publish());
  return Error{fmt::format("only {} of {} images and {} of {} messages could be taken from the replay", taken.images,
                           missing.images.size(), taken.payloads, missing.payloads.size())};
}

}  // namespace redrive
