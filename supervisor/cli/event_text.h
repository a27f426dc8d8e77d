// Recorded events as text for people, in the style of strace(1).
#pragma once

#include <string>

#include "logstore/trace.h"

namespace redrive {

// "read(3, 0x7ffe..., 64) = 64", "--- SIGCHLD ---". Not made safe for a terminal (printable, base/text.h).
std::string event_text(const Event& event);

// What ended in an event. A call that ends its thread ends the process as well if that was its last thread; this is
// known if the recorder has noted the state at the program's end there.
enum class Ended { nothing, thread, process };
Ended what_ended(const Trace& trace, UnitId unit, IntervalIndex interval, EventIndex index, const Event& event);

// The notes after an event, each preceded by two spaces: series count, births, messages, ends. Empty if there are none.
std::string event_notes(const Event& event, Ended ended);

}  // namespace redrive
