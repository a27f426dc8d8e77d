// For which results the kernel writes an out or in_out argument. Used by the syscall table and by the code inside
// tracees.
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

}  // namespace redrive
