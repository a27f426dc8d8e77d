// What the recording tells of the content of files that its units have written.
#pragma once

#include <string>

#include "base/result.h"
#include "logstore/trace.h"
#include "supervisor/live/kernel_objects.h"

namespace redrive {

// Whether all that the file holds beyond what it held at some place was added by the recording after that, through the
// same description, and is there as it was written. `there`, `later`: the description at that place and at the
// recording's end.
Result<bool> was_added_later(const Trace& trace, const std::string& path, const OpenObject& there,
                             const OpenObject& later);

}  // namespace redrive
