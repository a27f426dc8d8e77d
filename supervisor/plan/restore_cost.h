// The time that restoring memory and threads adds to a replay.
#pragma once

#include "logstore/trace.h"

namespace redrive {

// How much memory is assumed to be restored in a second: 2.4 to 3.2 times less than measured (tests/bench/engines.md).
inline constexpr double kRestoreBytesPerSecond = 500e6;

inline double restore_s(uint64_t bytes) { return static_cast<double>(bytes) / kRestoreBytesPerSecond; }

// How long it takes to start an interval without its memory, in times of what an empty stub takes, and for each range
// of a file or of memory that is mapped again. By what replays of many such took: 8 ms for a rank of Open MPI, with
// some 280 ranges, where a stub takes 1 ms; where it takes 3.4 ms, 18 ms for such a rank, and 14 ms for a small
// program.
inline constexpr double kStubs = 4, kMapping_s = 15e-6;

// How long it takes to make threads, of which each stops several times, and is stopped again when it ends: by what
// replays of 4,000 took, 0.1 ms for each where a stub takes 0.9 ms, 0.3 where it takes 3.5.
inline constexpr double kThreadStubs = 0.1;
inline double threads_s(double stub_s, uint64_t threads) {
  return kThreadStubs * stub_s * static_cast<double>(threads);
}

// Seconds to start an interval. `stub_s`: what an empty stub takes.
inline double start_s(double stub_s, size_t mappings, uint64_t threads, uint64_t memory_bytes) {
  return kStubs * stub_s + kMapping_s * static_cast<double>(mappings) + threads_s(stub_s, threads) +
         restore_s(memory_bytes);
}

// What of that restore_s() below does not have, where nothing was measured.
inline double unmeasured_start_s(double stub_s) { return start_s(stub_s, 0, 0, 0) - stub_s; }

// Seconds to restore what an interval starts from.
inline double restore_s(const Trace& trace, UnitId unit, IntervalIndex interval) {
  const double stub_s = trace.settings().restore_cost_s;
  const uint64_t threads = trace.intervals(unit)[interval].threads;
  return stub_s + threads_s(stub_s, threads) + restore_s(trace.stored_bytes(unit, interval));
}

}  // namespace redrive
