// The cost of every restore that does not depend on what is restored.
#pragma once

#include "base/result.h"

namespace redrive {

// How many seconds an empty stub takes to become ready on this host, measured now.
Result<double> measure_spawn_s();

}  // namespace redrive
