// Distributed breakpoints (Fowler and Zwaenepoel, "Causal distributed breakpoints", 1990): where each unit of an
// execution stands when some of them are to be inspected before certain events.
//
// A unit stands before an event if it has done everything that comes before the event, but not the event itself. A
// breakpoint is one such place for each unit, such that no unit has done anything that depends on something another
// unit has yet to do. An event depends on one of another unit by a message (logged or not), by a birth, or where units
// were joined.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/result.h"
#include "logstore/trace.h"

namespace redrive {

// The part of an execution that determines how its units depend on each other.
struct Communication {
  struct Need {
    EventIndex event = 0;  // this event has happened only if
    EventRef sender;       // this event of another unit has
    bool join = false;     // the sender's unit joined this one right before the event
  };
  struct Unit {
    EventIndex events = 0;          // how many events it has
    std::optional<EventRef> birth;  // the fork that made it
    std::vector<Need> needs;        // sorted by event; the birth is not among them
  };
  std::map<UnitId, Unit> units;
};

// Reads all events of a trace. What the trace does not hold of a sender counts as done once the rest is.
Result<Communication> read_communication(const Trace& trace);

struct Breakpoint {
  struct Place {
    EventIndex event = 0;  // the unit stands before this event, or at its end if there is no such event
    bool started = false;  // it has been born, and has done something or is to be inspected
  };
  std::map<UnitId, Place> units;  // all units
};

// The causal distributed breakpoint of some events of different units. Each of these units stands before its event.
// Every other unit stands at its earliest state that reflects all of its events that happened before one of those, as
// far as these do not depend on something that a listed unit has yet to do. An Error if the trace has no such unit or
// event, if a unit is listed twice, or if one of the events happened before another; the message names both.
//
// O(n log u) for n needs of u units.
Result<Breakpoint> causal_breakpoint(const Communication& communication, const std::vector<EventRef>& events);

// The breakpoint of these events that comes after another one: no unit stands before its place in that one. Also an
// Error if one of the events lies before that place.
Result<Breakpoint> later_breakpoint(const Communication& communication, const Breakpoint& from,
                                    const std::vector<EventRef>& events);

}  // namespace redrive
