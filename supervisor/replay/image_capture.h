// The state of a re-driven unit, as the recorder would have stored it there: at checkpoints of which no image is
// stored, and where units stand.
#pragma once

#include <optional>
#include <vector>

#include "supervisor/replay/preparation.h"
#include "supervisor/replay/redriving.h"

namespace redrive {

// Its processes, with their mappings as they were in the recording.
Result<std::vector<ProcessState>> capture_processes(const Redriving& redriving);

// Hands over an image of the checkpoint that the interval begins with, where the unit is. `entering`: the thread that
// is stopped at the entry of the interval's first event; none: a forked process has not run.
Result<void> capture_image(const Redriving& redriving, IntervalIndex interval, std::optional<ThreadSerial> entering,
                           Preparation& preparation);

}  // namespace redrive
