// What the code inside tracees (inprocess/) needs to know of the syscall table.
#pragma once

#include <memory>
#include <vector>

#include "interceptors/inprocess/layout.h"

namespace redrive {

// Rows that are not marked `in_process` are never served.
std::unique_ptr<gate::Table> gate_table();

// The numbers of all calls that the code can make with this table, in a recording.
std::vector<int> gate_numbers(const gate::Table& table);

}  // namespace redrive
