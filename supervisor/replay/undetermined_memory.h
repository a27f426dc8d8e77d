// Memory whose contents at a checkpoint a recording does not determine, so that a replay may hold other bytes there.
#pragma once

#include <vector>

#include "supervisor/replay/redriving.h"

namespace redrive {

// It is of two kinds. `from`: the checkpoint's first event.
//
// What the system calls in which the checkpoint found threads wrote. The kernel may have written it before the
// checkpoint or after; the program can tell only from the calls' exits on. If a call has no exit, because its thread or
// the recorder was killed, it is what the call could have written.
//
// The unused stack of programs that ran before they were recorded. There the dynamic linker saves registers by XSAVE,
// which leaves what depends on when the kernel last switched threads. Programs that redrive has started use FXSAVE
// (CpuidAnswers).
Result<std::vector<AddressRange>> undetermined_memory(const Redriving& redriving, const UnitState& state,
                                                      EventIndex from);

}  // namespace redrive
