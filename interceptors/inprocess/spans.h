// The memory of a call's arguments, as the code inside tracees sees it.
#pragma once

#include <sys/uio.h>

#include "interceptors/inprocess/layout.h"

namespace redrive::gate {

inline uint64_t argument(const Registers& regs, int index) { return (&regs.rdi)[index]; }

inline uint64_t string_length(uint64_t address) {
  const auto* text = reinterpret_cast<const char*>(address);
  uint64_t length = 0;
  while (length < 4096 && text[length]) ++length;
  return length < 4096 ? length + 1 : length;
}

// What the call may read or write at the span, as far as its arguments say.
inline uint64_t capacity(const Span& span, const Registers& regs) {
  const uint64_t other = argument(regs, span.other);
  switch (span.extent) {
    case Extent::fixed:
      return span.value;
    case Extent::arg:
      if (other > kRingSize * 8) return kRingSize + 1;
      return (other + span.divisor - 1) / span.divisor * span.value;
    case Extent::result:
      return other > kRingSize ? kRingSize + 1 : other * span.value;
    case Extent::pointee:
      return other ? *reinterpret_cast<const uint32_t*>(other) : 0;
    case Extent::path:
      return string_length(argument(regs, span.arg));
    case Extent::vector:
      return other > 64 ? kRingSize + 1 : other * sizeof(iovec);
  }
  return kRingSize + 1;
}

}  // namespace redrive::gate
