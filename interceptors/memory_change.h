// How a call changes the caller's memory layout: what the syscall table says, and the code inside tracees asks too.
#pragma once

#include <cstdint>

namespace redrive {

enum class MemoryChange : uint8_t {
  none,
  maps,    // as mmap(2): arguments 0 to 5
  range,   // of what is mapped at argument 0, argument 1 bytes
  breaks,  // as brk(2)
};

}  // namespace redrive
