// Distributed breakpoints (Fowler and Zwaenepoel, "Causal distributed breakpoints",
// 1990): where each unit of an execution stands when some of them are to be looked at before certain events.
//
// To stand before an event is to have done all that comes before it in the unit, and not the event. A breakpoint is one
// such place for each unit, so that no unit has done what needs something that another has yet to do. One event needs
// another of a different unit by a message (logged or not), by a birth, or where units were joined.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/result.h"
#include "logstore/trace.h"

namespace redrive {

// An execution as far as its units depend on each other.
struct Communication {
  struct Need {
    EventIndex event = 0;  // has happened only if
    EventRef sender;       // this, of another unit, has
    bool join = false;     // the sender's unit joined this one right before the event
  };
  struct Unit {
    EventIndex events = 0;          // how many it has
    std::optional<EventRef> birth;  // the fork that bore it
    std::vector<Need> needs;        // by event; the birth is not among them
  };
  std::map<UnitId, Unit> units;
};

// Reads all events of a trace. What the trace does not hold of a sender is taken for done when the rest is.
Result<Communication> read_communication(const Trace& trace);

struct Breakpoint {
  struct Place {
    EventIndex event = 0;  // it stands before this one: at its end if it has no such event
    bool started = false;  // it has been born, and has done something or is to be looked at
  };
  std::map<UnitId, Place> units;  // all
};

// The causal distributed breakpoint of some events of different units: each of these stands before its event; every
// other one at its earliest state that reflects all of its events that happened before one of those, in so far as these
// need nothing that a listed unit has yet to do. An Error: the trace has no such unit or event; a unit is listed twice;
// one of the events happened before another, which are named.
//
// O(n log u) for n needs of u units.
Result<Breakpoint> causal_breakpoint(const Communication& communication, const std::vector<EventRef>& events);

// The breakpoint of these events that comes after another one: no unit stands before where it stands there. An Error
// also if one of the events lies before that.
Result<Breakpoint> later_breakpoint(const Communication& communication, const Breakpoint& from,
                                    const std::vector<EventRef>& events);

}  // namespace redrive
