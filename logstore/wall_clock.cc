#include "logstore/wall_clock.h"

#include <algorithm>

namespace redrive {
namespace {

// So that sums of a few of them do not overflow; three hundred years have fewer nanoseconds.
constexpr uint64_t kLatest_ns = uint64_t{1} << 61;

uint64_t distance(int64_t a, int64_t b) { return static_cast<uint64_t>(a < b ? b - a : a - b); }

}  // namespace

bool WallClock::add(const WallClockRecord& record) {
  const uint64_t earliest_ns = records_.empty() ? 0 : records_.back().since_ns;
  const uint64_t offset_ns = distance(std::max(record.offset_ns, -INT64_MAX), 0);
  const bool possible = earliest_ns <= record.unchanged_ns && record.unchanged_ns <= record.since_ns &&
                        record.since_ns <= kLatest_ns && offset_ns <= kLatest_ns && record.error_ns <= kLatest_ns;
  if (possible) records_.push_back(record);
  return possible;
}

void WallClock::append(const WallClock& later) {
  for (const auto& record : later.records_) {
    if (records_.empty() || record.since_ns > records_.back().since_ns) add(record);
  }
}

// If the clock was set meanwhile, it is not known whether that was before or after.
std::optional<WallTime> WallClock::at(const EventTime& time) const {
  if (records_.empty() || !time.known() || std::max(time.to_ns, time.at_ns) > kLatest_ns) return std::nullopt;
  const auto later = std::partition_point(records_.begin() + 1, records_.end(),
                                          [&](const WallClockRecord& record) { return record.since_ns <= time.at_ns; });
  const WallClockRecord& valid = *(later - 1);
  uint64_t error_ns =
      std::max(time.at_ns - time.from_ns, time.to_ns - std::min(time.to_ns, time.at_ns)) + valid.error_ns;
  for (auto set = records_.begin() + 1; set != records_.end() && set->unchanged_ns <= time.to_ns; ++set) {
    if (set->since_ns > time.from_ns) error_ns += distance(set->offset_ns, (set - 1)->offset_ns);
  }
  return WallTime{static_cast<int64_t>(time.at_ns) + valid.offset_ns, std::min(error_ns, kLatest_ns)};
}

}  // namespace redrive
