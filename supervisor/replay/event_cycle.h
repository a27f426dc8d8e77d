// Series of calls that repeat in turn (supervisor/DESIGN.md, Series).
#pragma once

#include <vector>

#include "logstore/trace.h"

namespace redrive {

// The events whose calls the event's series consists of; the last is the event itself.
Result<std::vector<Event>> read_cycle(const Trace& trace, UnitId unit, EventIndex index, const Event& event);

}  // namespace redrive
