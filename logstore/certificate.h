// Whether every replay of a trace keeps the bound: how long each interval's replay takes, as far as it is known when
// the recording, or a preparation, ends. It is derived from the trace, and kept in a file of its own.
#pragma once

#include <optional>
#include <vector>

#include "logstore/trace.h"

namespace redrive {

// The replay of an interval, as predicted.
struct PredictedReplay {
  UnitId unit = 0;  // 0: of any interval, and the times are not exceeded
  IntervalIndex interval = 0;
  uint64_t intervals = 0;     // in its replay set
  double work_s = 0;          // to execute them, one after the other
  double restore_s = 0;       // to restore their memory, one after the other
  uint64_t memory_bytes = 0;  // stored pages of it
  double predicted_s = 0;     // with the certificate's jobs, at its pace
  double clock_error_s = 0;   // how much of that is there only because times of events are not exact
  uint64_t messages = 0;      // that these intervals receive from each other
  // Of predicted_s, not kept: to execute, at a pace of 1, and to restore.
  double executing_s = 0, restoring_s = 0;
  bool operator==(const PredictedReplay&) const = default;
};

// How long replays take on a host: so many times as long as recorded to execute, something for each interval and for
// each message, and something for each replay. (What it takes to restore memory is assumed, not measured: memory that
// is in the page cache now need not be there later.)
struct Pace {
  double times = 1;
  double least = 1, most = 1;  // `times`, if each of the `measured` replays were to be predicted by itself
  uint32_t measured = 0;
  double start_s = 0;    // to start an interval, in addition to restoring its memory
  double begin_s = 0;    // of every replay, however little it executes
  double message_s = 0;  // for a message between intervals
  bool operator==(const Pace&) const = default;
};

struct Certificate {
  double bound_s = 0;
  uint32_t jobs = 1;  // how many intervals are executed at a time
  Pace pace;
  uint64_t intervals = 0;             // those that were planned
  PredictedReplay slowest;            // of these
  std::vector<PredictedReplay> over;  // those that take longer than the bound, by unit and interval

  bool is_kept() const { return over.empty(); }
  bool operator==(const Certificate&) const = default;
};

Result<void> keep_certificate(const Trace& trace, const Certificate& certificate);
// None if there is none, or the trace has changed since it was made.
Result<std::optional<Certificate>> kept_certificate(const Trace& trace);

}  // namespace redrive
