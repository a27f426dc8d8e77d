// The memory layout of a re-driven process, as it was in the recording.
#pragma once

#include <vector>

#include "supervisor/replay/redriving.h"

namespace redrive {

// What the recorded process had mapped at this point, with the trace's names for files and shared memory.
Result<std::vector<Mapping>> program_mappings(const Redriving& redriving, ProcessSerial process);

}  // namespace redrive
