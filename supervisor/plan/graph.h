// From a trace to what planning and the listings need of it: extents of intervals, message counts, the replay
// dependence graph.
//
// A message is a receive of bytes that another unit of the trace sent. Bytes that a unit sends to itself make
// dependences, but are not counted as messages.
#pragma once

#include <map>
#include <vector>

#include "base/result.h"
#include "logstore/trace.h"
#include "supervisor/plan/plan.h"

namespace redrive {

struct IntervalExtent {
  EventIndex first_event = 0;
  EventIndex end_event = 0;  // one past its last event
  uint64_t cpu_ns = 0;       // 0 if the recorder was killed in it
};
// Of an interval that the trace holds. One that the recorder did not live to end goes up to the unit's last event.
IntervalExtent interval_extent(const Trace& trace, UnitId unit, IntervalIndex interval);

// Fails if an event is none that a replay of the interval could stop before, and says which there are.
Result<void> check_until(const Trace& trace, UnitId unit, IntervalIndex interval, EventIndex until);

// Whether the trace holds more of an interval than can be re-driven, because its recorder was stopped.
bool is_cut(const Trace& trace, const Rdg& graph, UnitId unit, IntervalIndex interval);

// False if its checkpoint was never published: such an interval is executed from the previous startable one on, and one
// that begins with a program not at all.
bool startable(const IntervalRecord& interval);

// Whether a receive is a message between units.
bool is_message(UnitId receiver, const Receive& receive);

// The replay dependence graph of a trace, read as far as plans need it: a plan of one interval must not cost as much as
// the trace is long.
//
// The dependences are the unlogged message parts that come from an earlier interval of the unit or from another unit.
// The birth of a fork without an image is its parent's fork event. A trace whose recorder was killed is read whole,
// because an interval ends (end_event) before the first receive whose send such a trace does not hold, and one that
// only leads through such a place, or through a checkpoint whose image is lost and was the only way in, as it is into
// every program that was executed, is not reachable.
class DependenceGraph {
 public:
  static Result<DependenceGraph> open(const Trace& trace);  // the trace must outlive the graph

  Result<PlanResult> plan(UnitId unit, IntervalIndex interval, std::optional<EventIndex> until = std::nullopt);
  Result<PlanResult> plan_together(std::span<const PlanRequest> requests);

  // All intervals, and the dependences of those read so far.
  const Rdg& rdg() const { return rdg_; }

  // What the events of a planned interval receive and find in no log, in their order. The interval was planned.
  struct Needed {
    EventIndex receiver = 0;
    EventRef sender;
    uint64_t length = 0;  // of the sender's payload, from its start
  };
  std::vector<Needed> needed(const PlannedInterval& planned) const;

 private:
  explicit DependenceGraph(const Trace& trace) : trace_(trace) {}
  Result<void> read(UnitId unit, IntervalIndex interval);
  void note_send_times();

  const Trace& trace_;
  Rdg rdg_;
  std::map<std::pair<UnitId, IntervalIndex>, std::vector<Needed>> read_;
  std::map<UnitId, std::map<EventIndex, uint64_t>> sends_;  // when each send happened
};

}  // namespace redrive
