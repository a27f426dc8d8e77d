// Which memory a recorded call has mapped, unmapped or protected anew.
#pragma once

#include <vector>

#include "checkpoint/address_space.h"
#include "interceptors/syscall_table.h"
#include "logstore/event.h"

namespace redrive {

// None if the call has left the memory alone. `brk`: the process's, as the call found it.
std::vector<AddressRange> changed_memory(const Event& event, Special special, Address brk);

// Whether the call has made memory that it changed executable.
bool makes_code(const Event& event, Special special);

// Brings the code that a process had before its memory changed in these ranges up to date.
Result<void> read_code_again(pid_t pid, const std::vector<AddressRange>& changed, std::vector<Mapping>& code);

bool overlap(const std::vector<AddressRange>& ranges, const std::vector<Mapping>& mappings);

}  // namespace redrive
