// redrive ls --checkpoints: the states that a trace holds, how large they are, and what they share.
#pragma once

#include "base/result.h"
#include "logstore/trace.h"

namespace redrive {

Result<int> list_checkpoints(const Trace& trace, bool json);

}  // namespace redrive
