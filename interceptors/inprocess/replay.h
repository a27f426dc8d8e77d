// The code inside tracees, in replay: answers calls from the ring without entering the kernel.
#pragma once

#include "interceptors/inprocess/layout.h"

namespace redrive::gate {

// Answers the call whose registers are in the slot if it is the one that the ring expects next, with the same
// arguments, registers and inputs, and puts its result there; false if it must stop.
bool answer(Slot& slot);

}  // namespace redrive::gate
