// redrive checkpoint --format criu: makes units of a recording into processes, and has CRIU dump them.
#pragma once

#include "base/result.h"
#include "supervisor/cli/checkpoint.h"

namespace redrive {

Result<int> export_images(const CheckpointOptions& options);

}  // namespace redrive
