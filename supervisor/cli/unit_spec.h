// UNIT[:I[-J]]: how users name a unit of a trace and a range of its intervals.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "logstore/trace.h"

namespace redrive {

struct UnitSpec {
  std::string unit;                                            // its number or name
  std::optional<IntervalIndex> first_interval, last_interval;  // both or neither, first <= last
  bool single() const { return first_interval && first_interval == last_interval; }
};

// Checks only the text: fails (Status::usage) if it cannot name anything. The intervals follow the last colon.
Result<UnitSpec> parse_unit_spec(const std::string& text);

// Whether a word that can be a TRACE or a UNIT is a TRACE: it has a '/', or a trace has that name. A number is a UNIT.
bool names_trace(const std::string& word);

// UNIT@EVENT: how users name the place of a unit right before one of its events. The event follows the last '@'.
struct PlaceSpec {
  std::string unit;
  EventIndex event = 0;
};
Result<PlaceSpec> parse_place_spec(const std::string& text);  // only the text, as above
// Fails if the trace has no such unit; does not check whether it has the event.
Result<std::vector<EventRef>> find_events(const Trace& trace, const std::vector<PlaceSpec>& places);

// UNIT@EVENT=SENDER: a receive of a unit, and the unit whose message comes first there.
struct DeliverySpec {
  PlaceSpec place;
  std::string sender;
};
Result<DeliverySpec> parse_delivery_spec(const std::string& text);  // only the text, as above

// UNIT:ADDRESS+LENGTH: memory of a unit, in bytes. Numbers may be hexadecimal (0x...).
struct MemorySpec {
  std::string unit;
  uint64_t address = 0;
  uint64_t length = 0;  // 1 to kMaxShownMemory
};
inline constexpr uint64_t kMaxShownMemory = 16 << 20;
Result<MemorySpec> parse_memory_spec(const std::string& text);
Result<MemorySpec> parse_memory_spec(const std::string& unit, const std::string& address, const std::string& length);

// Intervals [first, last] of a unit that the trace holds.
struct Selection {
  UnitId unit = 0;
  IntervalIndex first = 0;
  IntervalIndex last = 0;
};
// Fails if the trace has no such unit or interval, and says which there are.
Result<Selection> select(const Trace& trace, const UnitSpec& spec);

}  // namespace redrive
