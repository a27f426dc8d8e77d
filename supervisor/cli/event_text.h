// Recorded events as text for people, like strace(1).
#pragma once

#include <string>

#include "logstore/event.h"

namespace redrive {

// "read(3, 0x7ffe..., 64) = 64", "--- SIGCHLD ---": not made safe for a terminal (printable, base/text.h).
std::string event_text(const Event& event);
// What stands behind it, two spaces before each: series count, births, messages. Empty if nothing does.
std::string event_notes(const Event& event);

}  // namespace redrive
