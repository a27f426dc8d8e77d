// The memory layout of a re-driven process, as the recording's had it.
#pragma once

#include <vector>

#include "supervisor/replay/redriving.h"

namespace redrive {

// What the recording's process had mapped there, with the trace's names for files and shared memory.
Result<std::vector<Mapping>> program_mappings(const Redriving& redriving, ProcessSerial process);

}  // namespace redrive
