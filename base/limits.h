// What redrive uses it uses beside the program: limits that were set for that (ulimit, getrlimit(2)) are not redrive's,
// as far as it may lift them.
#pragma once

#include "base/result.h"

namespace redrive {

// Before there are other threads, whose stacks get small.
void lift_limits();

// Whether what is left is enough to record or re-drive anything; the error names the limit that is too low.
Result<void> check_limits();

// In a child that becomes the program, or another command of the user's: the limits that redrive was started with.
void give_back_limits();

}  // namespace redrive
