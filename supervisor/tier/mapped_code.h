// The code that a process has mapped from a file.
#pragma once

#include "base/remote.h"
#include "checkpoint/unit_state.h"
#include "interceptors/patch_window.h"

namespace redrive {

// The code as it is now, whatever is written into it later. It is read from the file, except for pages that the process
// has changed: reading a process's memory needs as much memory here.
CodeSegment mapped_code(const Memory& memory, const Mapping& mapping);

}  // namespace redrive
