// Recorded events as text for people, in the style of strace(1).
#pragma once

#include <string>

#include "logstore/event.h"

namespace redrive {

// "read(3, 0x7ffe..., 64) = 64", "--- SIGCHLD ---". Not made safe for a terminal (printable, base/text.h).
std::string event_text(const Event& event);
// The notes after it, each preceded by two spaces: series count, births, messages. Empty if there are none.
std::string event_notes(const Event& event);

}  // namespace redrive
