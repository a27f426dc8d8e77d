// UNIT[:I[-J]]: how users name a unit of a trace and a range of its intervals.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "logstore/trace.h"

namespace redrive {

struct UnitSpec {
  std::string unit;                                            // its number or name
  std::optional<IntervalIndex> first_interval, last_interval;  // both or neither, first <= last
  bool single() const { return first_interval && first_interval == last_interval; }
};

// Text only: fails (Status::usage) if it cannot name anything. The interval part follows the last colon.
Result<UnitSpec> parse_unit_spec(const std::string& text);

// Intervals [first, last] of a unit that the trace holds.
struct Selection {
  UnitId unit = 0;
  IntervalIndex first = 0;
  IntervalIndex last = 0;
};
// Fails if the trace has no such unit or interval, and says which there are.
Result<Selection> select(const Trace& trace, const UnitSpec& spec);

// A number as the command line takes it: decimal digits that fit; nothing else.
std::optional<uint64_t> parse_number(std::string_view text);

}  // namespace redrive
