// The time of day in a trace. Times of events are those of CLOCK_MONOTONIC, which never goes back; the journal says how
// far CLOCK_REALTIME was from it, and when somebody has set it (clock_gettime(2), settimeofday(2)).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "logstore/event.h"

namespace redrive {

// From some moment between `unchanged_ns` and `since_ns` on, the wall clock was `offset_ns` ahead of the monotonic one,
// give or take `error_ns`. Both are the same in a recording's first record, which is also about earlier times.
struct WallClockRecord {
  uint64_t unchanged_ns = 0;
  uint64_t since_ns = 0;
  int64_t offset_ns = 0;
  uint64_t error_ns = 0;
};

// Since the epoch, give or take `error_ns`.
struct WallTime {
  int64_t unix_ns = 0;
  uint64_t error_ns = 0;
};

class WallClock {
 public:
  // In the order of time. False if it cannot be.
  bool add(const WallClockRecord& record);
  // Adds what another one, which may begin with the same records, knows of later times.
  void append(const WallClock& later);
  // Nothing if the trace does not say: then no event has a time either.
  std::optional<WallTime> at(const EventTime& time) const;
  std::optional<WallTime> at(uint64_t monotonic_ns) const { return at({monotonic_ns, monotonic_ns, monotonic_ns}); }

 private:
  std::vector<WallClockRecord> records_;
};

}  // namespace redrive
