// How a call changes the caller's memory layout. Used by the syscall table and by the code inside tracees.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstdint>

namespace redrive {

enum class MemoryChange : uint8_t {
  none,
  maps,    // as mmap(2): arguments 0 to 5
  range,   // changes what is mapped from argument 0 on, argument 1 bytes
  breaks,  // as brk(2)
};

// Whether a call with this number and third argument, if it succeeds, makes memory in which the program can write code
// and execute it.
constexpr bool makes_writable_code(uint64_t number, uint64_t protection) {
  constexpr uint64_t kBoth = PROT_WRITE | PROT_EXEC;
  return (number == SYS_mmap || number == SYS_mprotect) && (protection & kBoth) == kBoth;
}

}  // namespace redrive
