// What planning and the listings need of a trace: extents of intervals, message counts, the replay dependence graph.
//
// A message is a receive of bytes that another unit of the trace sent. Bytes that a unit sends to itself make
// dependences, but do not count as messages.
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
// The extent of an interval that the trace holds. If the recorder was killed before the interval ended, it extends to
// the unit's last event.
IntervalExtent interval_extent(const Trace& trace, UnitId unit, IntervalIndex interval);

// Fails if a replay of the interval could not stop before this event, and says before which events it could.
Result<void> check_until(const Trace& trace, UnitId unit, IntervalIndex interval, EventIndex until);

// Whether the trace holds more of an interval than can be re-driven, because its recorder was stopped.
bool is_cut(const Trace& trace, const Rdg& graph, UnitId unit, IntervalIndex interval);

// Whether the interval ends at a checkpoint with an image, with which registers and pages can be compared; others end
// with their program.
bool ends_in_image(const Trace& trace, const Rdg& graph, UnitId unit, IntervalIndex interval);

// False if the interval's checkpoint was never published. Such an interval is executed from the previous startable one
// on; if it begins with a program, it cannot be executed at all.
bool startable(const IntervalRecord& interval);

// Whether a receive is a message between units.
bool is_message(UnitId receiver, const Receive& receive);

// The replay dependence graph of a trace. It is read only as far as plans need it, so that the cost of planning one
// interval does not depend on the length of the trace.
//
// The dependences are the unlogged message parts that come from an earlier interval of the unit or from another unit.
// The birth of a fork without an image depends on its parent's fork event. A trace whose recorder was killed is read
// whole: an interval ends (end_event) before the first receive whose send is missing. An interval is not reachable if
// every way to it leads through such a place, or through a checkpoint whose image is lost and was the only way in, as
// for every program that was executed.
class DependenceGraph {
 public:
  static Result<DependenceGraph> open(const Trace& trace);  // the trace must outlive the graph

  Result<PlanResult> plan(UnitId unit, IntervalIndex interval, std::optional<EventIndex> until = std::nullopt);
  Result<PlanResult> plan_together(std::span<const PlanRequest> requests);

  // Reads all that plans of any interval need.
  Result<void> read_all();

  // All intervals, and the dependences of those that have been read.
  const Rdg& rdg() const { return rdg_; }

  // What the events of a planned interval receive that is not logged, in their order. The interval must have been
  // planned.
  struct Needed {
    EventIndex receiver = 0;
    EventRef sender;
    uint64_t length = 0;  // of the sender's payload, from its start
  };
  std::vector<Needed> needed(const PlannedInterval& planned) const;

 private:
  explicit DependenceGraph(const Trace& trace) : trace_(trace) {}
  // An interval of a unit.
  using Place = std::pair<UnitId, IntervalIndex>;
  // Sends in their order, each with its time.
  using Sent = std::vector<std::pair<EventIndex, uint64_t>>;
  class SendTimes;

  // What an interval needs and sends.
  struct Content {
    std::vector<Rdg::Dependence> unlogged;
    std::vector<Needed> needed;
    Sent sent;
    bool begins_with_turn = false;
  };

  void find_children();
  // Reads the intervals that have not been read yet, on all processors.
  Result<void> read(std::vector<Place> places);
  Result<Content> content_of(const Place& place) const;
  void add(const Place& place, Content content);
  void note_send_times(const Place& read);

  const Trace& trace_;
  Rdg rdg_;
  std::map<Place, std::vector<UnitId>> children_;  // that are born in an interval, and begin without an image
  // What the intervals that have been read need, and what they have sent.
  std::map<Place, std::vector<Needed>> read_;
  std::map<Place, Sent> sends_;
  // What depends on sends of intervals that have not been read.
  std::map<Place, std::vector<EventRef>> awaiting_;
};

}  // namespace redrive
