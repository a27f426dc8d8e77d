// redrive needs resources in addition to the program's. Limits that were set for the program (ulimit, getrlimit(2))
// shall not limit redrive, as far as it may raise them. Those of memory and CPU time also protect their user from a
// trace whose reading would take too much, so they are raised only where programs are recorded or re-driven.
#pragma once

#include "base/result.h"

namespace redrive {

// Call this before there are other threads, because it makes their stacks small.
void lift_limits();

// Raises those of memory and CPU time. Processes that hold the memory of programs inherit them. Call it after
// lift_limits().
void lift_limits_of_programs();

// Whether the remaining limits are high enough to record or re-drive anything; the error names the limit that is too
// low.
Result<void> check_limits();

// For a child that becomes the program, or another command of the user: restores the limits that redrive was started
// with.
void give_back_limits();

}  // namespace redrive
