// Finds the place where a thread handed the baton over some instructions after its event before (Preempted::stepped).
#pragma once

#include "supervisor/replay/redriving.h"

namespace redrive {

// Runs the thread, which stands right after that event, to the place. The tier of its unit is removed on the way,
// because the instructions that it replaces would be counted otherwise than in the recording.
Result<Step> step_to_place(const Redriving& redriving, RedrivenThread& thread, EventIndex index, const Event& event);

}  // namespace redrive
