// Memory that system calls write at a moment that is not recorded.
#pragma once

#include <vector>

#include "supervisor/replay/redriving.h"

namespace redrive {

// What the system calls in which a checkpoint found threads wrote. The kernel may have written it before the checkpoint
// or after; the program can tell only from the calls' exits on. If a call has no exit, because its thread or the
// recorder was killed, it is what the call could have written.
// `from`: the checkpoint's first event.
Result<std::vector<AddressRange>> pending_outputs(const Redriving& redriving, const UnitState& state, EventIndex from);

}  // namespace redrive
