// Which events the intervals that are re-driven together execute.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "logstore/event.h"

namespace redrive {

// The events that one of the intervals executes.
struct ExecutedEvents {
  UnitId unit = 0;
  EventIndex first = 0, end = 0;
};

// Finds the interval, known by its index, that executes an event. No event is executed by two.
class Executors {
 public:
  explicit Executors(std::vector<ExecutedEvents> intervals) : intervals_(std::move(intervals)) {
    for (size_t i = 0; i < intervals_.size(); ++i) {
      if (intervals_[i].first < intervals_[i].end) by_first_event_[{intervals_[i].unit, intervals_[i].first}] = i;
    }
  }

  const std::vector<ExecutedEvents>& intervals() const { return intervals_; }
  std::optional<size_t> of(EventRef event) const {
    const auto after = by_first_event_.upper_bound(event);
    if (after == by_first_event_.begin()) return std::nullopt;
    const size_t interval = std::prev(after)->second;
    const ExecutedEvents& its = intervals_[interval];
    return its.unit == event.unit && event.event < its.end ? std::optional(interval) : std::nullopt;
  }

 private:
  std::vector<ExecutedEvents> intervals_;
  std::map<EventRef, size_t> by_first_event_;
};

}  // namespace redrive
