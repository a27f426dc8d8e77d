// For which results the kernel writes an out or in_out argument, and when it may have written more than it says. Used
// by the syscall table and by the code inside tracees.
#pragma once

#include <cstdint>

namespace redrive {

enum class Written : uint8_t { success, positive, error, always };

constexpr bool is_written(Written written, int64_t result) {
  switch (written) {
    case Written::success:
      return result >= 0;
    case Written::positive:
      return result > 0;
    case Written::error:
      return result < 0;
    case Written::always:
      return true;
  }
  return false;
}

// Whether a read of a file that was opened with O_DIRECT may have written more of its buffer, of that capacity, than
// its result says: it reads whole blocks, into buffers of whole sectors, also at the file's end (open(2)).
constexpr bool may_end_in_block(uint64_t capacity, int64_t result) {
  constexpr uint64_t kSector = 512;
  return capacity % kSector == 0 && result > 0 && static_cast<uint64_t>(result) < capacity;
}

}  // namespace redrive
