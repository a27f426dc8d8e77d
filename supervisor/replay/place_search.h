// Finds the place where a thread was preempted: its registers and all memory of its unit are those of the interval's
// image. Two equal states in one stretch without events are the same place: a thread that comes from one to the other
// does so forever.
//
// At the place, a jump leads to code that compares all registers, and those words of memory that told wrong candidates
// apart (Probe); then all memory is compared. Where no jump fits, as always in 32-bit code, the thread is stopped each
// time that it comes by, for up to 2 s of CPU time, its own and the supervisor's. If the thread has yet to write the
// code, a debug register stops it there first, because anything that was put into the code would be overwritten. If the
// program overwrites what was to stop it, or does not get there in time, the interval counts as not verified.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "supervisor/replay/redriving.h"

namespace redrive {

// How the search went.
struct Found {};
struct NotFound {
  std::string why;  // not within a reasonable time
};
using SearchEnd = std::variant<Found, NotFound, Difference>;

// The interval that begins where this event, a preemption, has stopped a thread; none if none does. Those before it
// that begin with the same event are empty, and begin at a call.
std::optional<IntervalIndex> interval_begun_by(const Trace& trace, EventRef at, const Event& event);

// Runs the thread, which stands somewhere after its last event, to the place where it was preempted before the event:
// the interval's start. No other thread sees what it does on the way. The tier of its unit is removed.
Result<SearchEnd> run_to_place(const Redriving& redriving, ThreadSerial thread, EventIndex index,
                               IntervalIndex interval);

}  // namespace redrive
