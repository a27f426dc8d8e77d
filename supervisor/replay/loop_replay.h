// Finds the place where a thread handed the baton over in a loop in which it waits (Preempted::waiting).
#pragma once

#include "supervisor/replay/redriving.h"
#include "supervisor/replay/site_patcher.h"

namespace redrive {

// Runs the thread, which stands right after its event before, to the place. The tier counts how often it comes there;
// where it cannot, the thread is stopped each time.
Result<Step> run_to_loop(const Redriving& redriving, SitePatcher& patcher, RedrivenThread& thread, EventIndex index,
                         const Event& event);

}  // namespace redrive
