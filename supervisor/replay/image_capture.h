// The state of a re-driven unit at a checkpoint of which no image is stored, as the recorder would have stored it
// there.
#pragma once

#include <optional>

#include "supervisor/replay/preparation.h"
#include "supervisor/replay/redriving.h"

namespace redrive {

// Hands over an image of the checkpoint that the interval begins with, where the unit is. `entering`: the thread that
// is stopped at the entry of the interval's first event; none: a forked process has not run.
Result<void> capture_image(const Redriving& redriving, IntervalIndex interval, std::optional<ThreadSerial> entering,
                           Preparation& preparation);

}  // namespace redrive
