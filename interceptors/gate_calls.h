// What the code inside tracees (inprocess/) needs to know of the syscall table.
#pragma once

#include <vector>

#include "interceptors/inprocess/layout.h"

namespace redrive {

// `table` is empty. Rows that are not marked `in_process` are never served.
void fill_gate_table(gate::Table& table);

// The numbers of all calls that the code can make with this table, in a recording.
std::vector<int> gate_numbers(const gate::Table& table);

}  // namespace redrive
