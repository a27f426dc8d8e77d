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

inline const Call& call_at(uint64_t number) { return reinterpret_cast<const Call*>(kTable)[number]; }

// visit(address, length, payload) for each piece of memory that the kernel reads at the call's entry, in order.
template <typename Visit>
void for_each_input(const Call& call, const Registers& regs, Visit visit) {
  for (int i = 0; i < call.spans; ++i) {
    const Span& span = call.span[i];
    const uint64_t address = argument(regs, span.arg);
    if (!address || !span.before) continue;
    const bool buffers = span.extent == Extent::vector;
    visit(address, capacity(span, regs), span.payload && !buffers);
    if (!buffers || span.after) continue;
    const auto* vector = reinterpret_cast<const iovec*>(address);
    for (uint64_t k = 0; k < argument(regs, span.other); ++k) {
      if (vector[k].iov_base) visit(reinterpret_cast<uint64_t>(vector[k].iov_base), vector[k].iov_len, span.payload);
    }
  }
}

}  // namespace redrive::gate
