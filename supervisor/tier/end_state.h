// The state of a process where an interval ends together with its program, by exit, execve or a fatal fault: hashes of
// the registers of the thread that ends it, and of pages of its memory. No image is stored there; verification compares
// these instead. Opaque to the trace (IntervalEnd::state).
//
// The pages are a sample, small enough not to slow down recordings of short programs. A replay reads the same ones,
// because its mappings and page tables would not allow it to choose them. What the calls of other threads may write is
// left out. Nothing is noted for a unit of several processes, or when a signal from elsewhere kills, because it is not
// known where that happened.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "checkpoint/address_space.h"

namespace redrive {

struct EndState {
  uint64_t registers = 0;
  uint64_t extended = 0;       // x87, SSE, AVX and so on
  uint64_t extended_size = 0;  // bytes: comparable only if the processor has the same registers
  uint64_t memory = 0;         // of all these pages, one after the other
  std::vector<Address> pages;  // ascending

  bool operator==(const EndState&) const = default;
};

Bytes encode(const EndState& state);
std::optional<EndState> decode_end_state(std::span<const uint8_t> encoded);

// The state of the stopped thread, which has these registers: at the entry of a call, those right before it. `xstate`:
// the extended registers, empty if the thread was killed. Nullopt in that case, or if a page cannot be read.
std::optional<EndState> read_end_state(const user_regs_struct& regs, const Bytes& xstate, const Memory& memory,
                                       std::vector<Address> pages);

// Private pages that a process has written, up to a limit: those of the stack from `sp` on, and others spread evenly
// over all. None of them lies in the ranges.
std::vector<Address> sample_pages(pid_t pid, Address sp, const std::vector<AddressRange>& except);

}  // namespace redrive
