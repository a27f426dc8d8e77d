// Times of day in commands: how users write a moment of a recording, when its intervals ran, and how times are shown.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "logstore/trace.h"
#include "supervisor/cli/command.h"
#include "supervisor/cli/unit_spec.h"

namespace redrive {

// Since the epoch.
struct RecordedSpan {
  int64_t start_ns = 0, end_ns = 0;
};

// What a written time stands for: everything that begins with its digits. "14:03:07" is a second, and a time that is
// shown in microseconds includes the exact one. Since the epoch; `last_ns` belongs to it.
struct Moment {
  int64_t first_ns = 0, last_ns = 0;
};

// Reads a time of the local clock, or of UTC with `utc`. A time without a day is the last such moment of the recording,
// or before it. If the text is not a time, the error (Status::usage) says how to write one.
Result<Moment> parse_moment(const std::string& text, bool utc, const RecordedSpan& recorded);
// An option whose value is a moment of a trace that is not known yet: checks how it is written.
void add_moment(Arguments& arguments, const char* name, const std::string& help, std::optional<std::string>& text);
void add_utc(Arguments& arguments, bool& utc);

// "14:03:07.250123"; with its day, "2026-11-25 14:03:07.250123"; "2026-11-25T14:03:07.250123Z" (RFC 3339).
std::string clock_text(int64_t unix_ns, bool utc);
std::string day_text(int64_t unix_ns, bool utc);
std::string rfc3339(int64_t unix_ns);
// By how much a time may be wrong: "+-12us", "+-0.38ms", "+-1.2s"; never less than it is.
std::string error_text(uint64_t error_ns);

// When an interval ran, as far as it is known. If the recorder was killed, it ended with its last event.
struct IntervalTimes {
  std::optional<WallTime> began, ended;
  // Whether it may have run then. One whose end is not known has not ended.
  bool ran_at(const Moment& moment) const;
};
Result<IntervalTimes> interval_times(const Trace& trace, UnitId unit, IntervalIndex interval);
// An error if the trace has no times.
Result<RecordedSpan> recorded_span(const Trace& trace);

// The intervals that ran at a moment, of one unit or all. None is an error, which says when the recording was.
Result<std::vector<Selection>> intervals_at(const Trace& trace, const std::string& moment, bool utc,
                                            const std::optional<UnitId>& unit);

}  // namespace redrive
