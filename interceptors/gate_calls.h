// What the code inside tracees (inprocess/) must know of the syscall table.
#pragma once

#include <vector>

#include "interceptors/inprocess/layout.h"

namespace redrive {

// By number. Rows that are not marked `in_process`, and multiplexers, are never served.
std::vector<gate::Call> gate_calls();

}  // namespace redrive
