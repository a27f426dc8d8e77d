// Replay planning (Netzer et al., section 4): which intervals must be executed again, each up to its requisite event,
// to re-drive one interval. Pure: works on a replay dependence graph in memory, and knows no trace and no processes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "logstore/event.h"

namespace redrive {

// The replay dependence graph, as far as planning needs it.
struct Rdg {
  struct Interval {
    EventIndex first_event = 0;
    EventIndex end_event = 0;  // one past its last event
    uint64_t cpu_ns = 0;
    bool startable = true;  // false: its checkpoint cannot be used; it is executed from the previous startable one on
    std::optional<EventRef> birth;  // a fork checkpoint without an image: the parent's fork event must be re-executed
    std::optional<uint64_t> birth_at_ns = std::nullopt;  // CPU time since the parent's checkpoint, if known
    bool reachable = true;        // false: nothing that a killed recorder wrote leads to its first event
    uint64_t clock_error_ns = 0;  // by how much a time of one of its sends and receives may be wrong
  };
  // An unlogged message part, or a fork: `receiver` cannot be re-executed without `sender`.
  struct Dependence {
    EventRef receiver;
    EventRef sender;
    uint64_t receiver_at_ns = 0;  // CPU time since the receiving interval's checkpoint
    uint64_t sender_at_ns = 0;
    uint64_t bytes = 0;    // of the message part
    bool is_kept = false;  // its payload is to be added to the trace, so nothing depends on it any more
  };
  std::map<UnitId, std::vector<Interval>> units;       // intervals by index; each ends where the next begins, or before
  std::map<UnitId, std::vector<Dependence>> unlogged;  // by receiving unit, sorted by receiver event

  // The index of the interval of `unit` that holds `event`; nullopt if the unit has no such event.
  std::optional<IntervalIndex> interval_of(EventRef event) const;
};

// The place of the first of a unit's dependences whose receiver is `event` or later.
size_t first_at(const std::vector<Rdg::Dependence>& unlogged, EventIndex event);

struct PlannedInterval {
  UnitId unit = 0;
  IntervalIndex start = 0;         // the interval whose checkpoint it starts from
  IntervalIndex interval = 0;      // the interval in which it is needed (>= start)
  EventIndex requisite_event = 0;  // one past the last event to execute
  uint64_t cpu_ns = 0;             // the CPU time of it that is needed
  uint64_t clock_error_ns = 0;     // how much more that may be
};

struct Plan {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  std::vector<PlannedInterval> replay_set;  // the requested intervals come first
  uint64_t critical_path_ns = 0;            // longest path, as if each interval had its own processor
  uint64_t work_ns = 0;                     // sum of all CPU times
  uint64_t messages = 0;                    // that its intervals receive from each other, births included
};

// `until`: one past the last event wanted of the requested interval; by default, its end. There is no plan if the
// interval cannot be re-driven because the sender of some dependence is not in the graph.
struct PlanError {
  EventRef missing;  // what is needed but missing
  EventRef needed_by;
};
std::string describe(const PlanError& error);
struct PlanResult {
  std::optional<Plan> plan;
  std::optional<PlanError> error;
};
PlanResult plan(const Rdg& graph, UnitId unit, IntervalIndex interval, std::optional<EventIndex> until = std::nullopt);

// Intervals of different units that are re-driven together. They have one replay set, which begins with them in their
// order, and the longest path of all. The plan's unit and interval are those of the first.
struct PlanRequest {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  std::optional<EventIndex> until;
};
PlanResult plan_together(const Rdg& graph, std::span<const PlanRequest> requests);

// The same for many plans of one graph. Meanwhile, dependences may become kept and births may be removed; nothing else
// of the graph may change.
class Planner {
 public:
  explicit Planner(const Rdg& graph);  // which must outlive it
  ~Planner();
  PlanResult plan(std::span<const PlanRequest> requests);
  PlanResult plan(UnitId unit, IntervalIndex interval);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace redrive
