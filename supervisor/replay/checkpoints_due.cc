#include "supervisor/replay/checkpoints_due.h"

namespace redrive {

std::optional<CheckpointsDue::Due> CheckpointsDue::next(EventIndex index, EventKind kind) {
  while (next_ < intervals_.size() && intervals_[next_].first_event <= index) {
    const IntervalIndex interval = next_++;
    const bool starts = interval == start_;
    if (interval < start_ || (starts && intervals_[interval].has_image)) continue;
    if (intervals_[interval].first_event != index || !wanted_(interval)) continue;
    // The place of a preemption is known from its image alone.
    if (starts || kind != EventKind::preemption) return Due{interval, starts};
  }
  return std::nullopt;
}

}  // namespace redrive
