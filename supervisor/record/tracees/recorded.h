// The right to use what is recorded of the programs: the logs and clocks of units, what is known of the calls of their
// threads, channels, the policy, mapped objects and findings. It belongs to one thread at a time, either the record
// loop or the thread that makes events of served calls; ServedCalls hands it from one to the other.
//
// It is no lock. Where the record loop enters the parts that use what is recorded, the compiler checks that it has the
// right (base/mutex.h).
#pragma once

#include "base/mutex.h"

namespace redrive {

class CAPABILITY("right") RightToRecorded {};
inline RightToRecorded recorded;

}  // namespace redrive
