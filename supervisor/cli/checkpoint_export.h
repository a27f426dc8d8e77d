// redrive checkpoint -o: brings units to a place of a recording, and exports their states there.
#pragma once

#include "base/result.h"
#include "supervisor/cli/checkpoint.h"

namespace redrive {

// Returns 0, or Status::divergence if what had to be re-driven has diverged.
Result<int> export_checkpoint(const CheckpointOptions& options);

}  // namespace redrive
