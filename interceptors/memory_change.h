// How a call changes the caller's memory layout. Used by the syscall table and by the code inside tracees.
#pragma once

#include <cstdint>

namespace redrive {

enum class MemoryChange : uint8_t {
  none,
  maps,    // as mmap(2): arguments 0 to 5
  range,   // changes what is mapped from argument 0 on, argument 1 bytes
  breaks,  // as brk(2)
};

}  // namespace redrive
