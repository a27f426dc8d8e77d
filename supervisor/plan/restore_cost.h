// The time that restoring memory adds to a replay, and which intervals it makes too long for the bound.
#pragma once

#include <vector>

#include "logstore/trace.h"

namespace redrive {

// How much memory is assumed to be restored in a second: 2.4 to 3.2 times less than measured (checkpoint/DESIGN.md).
inline constexpr double kRestoreBytesPerSecond = 500e6;

inline double restore_s(uint64_t bytes) { return static_cast<double>(bytes) / kRestoreBytesPerSecond; }

// Seconds to restore what an interval starts from.
double restore_s(const Trace& trace, UnitId unit, IntervalIndex interval);

// The longest interval of a unit among those that take longer than the bound even if they need no other.
struct OverBound {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  uint64_t memory_bytes = 0;  // of the checkpoint that it is executed from
  double restore_s = 0;
  double cpu_s = 0;
  double predicted_s() const { return restore_s + cpu_s; }
};
std::vector<OverBound> over_bound(const Trace& trace);  // by unit
// The same as one line for people.
std::string describe(const Trace& trace, const OverBound& over);

}  // namespace redrive
