// What the code inside tracees (inprocess/) must know of the syscall table.
#pragma once

#include <memory>

#include "interceptors/inprocess/layout.h"

namespace redrive {

// Rows that are not marked `in_process` are never served.
std::unique_ptr<gate::Table> gate_table();

}  // namespace redrive
