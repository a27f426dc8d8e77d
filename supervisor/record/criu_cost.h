// What it costs to have CRIU dump a process on this host. It is measured once, and kept for later recordings.
#pragma once

#include <optional>

#include "base/result.h"
#include "supervisor/record/settings/checkpoint_engine.h"

namespace redrive {

// Dumps a few processes.
Result<CriuCost> measure_criu_cost();
// In redrive's cache directory. Nothing is kept if there is none.
void keep_criu_cost(const CriuCost& cost);
// Nothing if none was kept, if that was with another kernel, or if this user cannot run CRIU.
std::optional<CriuCost> kept_criu_cost();

}  // namespace redrive
