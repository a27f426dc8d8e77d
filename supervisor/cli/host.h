// Whether processes can be traced here, and if not, why.
#pragma once

#include "base/result.h"

namespace redrive {

// What every command looks for that will trace processes.
Result<void> check_surroundings();

// Whether this host can record (redrive check --host).
Result<void> check_host(bool json);

}  // namespace redrive
