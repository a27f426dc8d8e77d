// Memory that system calls write at a moment that the recording does not tell.
#pragma once

#include <vector>

#include "supervisor/replay/redriving.h"

namespace redrive {

// What the system calls that a checkpoint caught threads in went on to write. The kernel may have written it before the
// checkpoint or after; the program can tell only from the calls' exits on. Of a call that has none, because its thread
// or the recorder was killed, what it could have written.
// `from`: the checkpoint's first event.
Result<std::vector<AddressRange>> pending_outputs(const Redriving& redriving, const UnitState& state, EventIndex from);

}  // namespace redrive
