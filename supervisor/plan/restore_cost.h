// The time that restoring memory adds to a replay.
#pragma once

#include "logstore/trace.h"

namespace redrive {

// How much memory is assumed to be restored in a second: 2.4 to 3.2 times less than measured (checkpoint/DESIGN.md).
inline constexpr double kRestoreBytesPerSecond = 500e6;

inline double restore_s(uint64_t bytes) { return static_cast<double>(bytes) / kRestoreBytesPerSecond; }

// How long it takes to map one range of a file or of memory again. A rank of Open MPI has some 280. By what
// replays of many such ranks took, it takes some 13 ms to start, of which 5 are for its memory.
inline constexpr double kMapping_s = 25e-6;

// Seconds to restore what an interval starts from.
inline double restore_s(const Trace& trace, UnitId unit, IntervalIndex interval) {
  return trace.settings().restore_cost_s + restore_s(trace.stored_bytes(unit, interval));
}

}  // namespace redrive
