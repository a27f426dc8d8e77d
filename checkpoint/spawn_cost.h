// What every restore costs, whatever is restored.
#pragma once

#include "base/result.h"

namespace redrive {

// Seconds that an empty stub takes to become ready on this host, now.
Result<double> measure_spawn_s();

}  // namespace redrive
