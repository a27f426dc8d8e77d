// The auxiliary vector of a process (getauxval(3)): where the kernel has put its program and its loader. Debuggers need
// it to find out where both were relocated to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"

namespace redrive {

// Finds it in the memory at the end of a process's first stack, where the kernel has put it before the arguments and
// the environment (create_elf_tables(), fs/binfmt_elf.c). Returns its bytes with AT_NULL at their end; empty if there
// is none. `stack` begins at a multiple of 8.
Bytes find_auxiliary_vector(std::span<const uint8_t> stack);

// A value in such a vector, by its number (AT_*).
std::optional<uint64_t> auxiliary_value(std::span<const uint8_t> vector, uint64_t number);

}  // namespace redrive
