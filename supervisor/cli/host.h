// Whether processes can be traced here, and if not, why.
#pragma once

#include "base/result.h"

namespace redrive {

// What every command does first that will trace processes: raises the limits of memory and CPU time, and fails if
// processes cannot be traced here.
Result<void> prepare_to_trace();

// Whether this host can record (redrive check --host).
Result<void> check_host(bool json);

}  // namespace redrive
