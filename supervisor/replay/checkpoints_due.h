// Which virtual checkpoints, of whose state an image is to be made, an interval passes on its way.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "logstore/trace.h"

namespace redrive {

class CheckpointsDue {
 public:
  using Wanted = std::function<bool(IntervalIndex)>;
  // `intervals`: of the unit. The execution starts at the checkpoint of `start`.
  CheckpointsDue(const std::vector<IntervalRecord>& intervals, IntervalIndex start, Wanted wanted)
      : intervals_(intervals), start_(start), wanted_(std::move(wanted)) {}

  struct Due {
    IntervalIndex interval = 0;
    // The checkpoint of a forked process that has not run. Any other one is taken when the next event's thread reaches
    // it.
    bool at_birth = false;
  };
  // The next one before this event, which is the next to be executed. None: the event can be.
  std::optional<Due> next(EventIndex index, EventKind kind);

 private:
  const std::vector<IntervalRecord>& intervals_;
  const IntervalIndex start_;
  const Wanted wanted_;
  IntervalIndex next_ = 0;  // not looked at yet
};

}  // namespace redrive
