// What a call that changes memory has changed before it failed: the kernel goes from mapping to mapping, and stops at
// the first that it cannot change.
#pragma once

#include <optional>

#include "supervisor/record/tracees/tracee.h"

namespace redrive {

// What the thread's call had changed, as the event has it (Event::map), at its exit with this error. A replay that
// changes just that has the same memory: where the call had not come, or changed nothing, it may name more, if that was
// so before. None if that cannot be told, or nothing can have been changed.
std::optional<MapSource> changed_in_part(const Thread& thread, int64_t error);

}  // namespace redrive
