// Where a program's files hold cpuid instructions, for processors that cannot be told to trap them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace redrive {

struct CpuidSite {
  uint64_t offset;             // in the file
  std::vector<uint8_t> front;  // lengths of the instructions in front of it, the nearest first; at most kMaxFront
};
inline constexpr size_t kMaxFront = 4;

// The cpuid instructions of an ELF file that are beyond doubt: in a section of instructions, inside a function that
// .eh_frame (LSB Core, "Exception Frames") or Go's .gopclntab tells the start of, and met when it is disassembled from
// there. Sorted. Empty for anything that is no such file.
std::vector<CpuidSite> cpuid_sites(const Bytes& file);

// To keep them; none if the bytes are not what encode() makes of some.
Bytes encode(const std::vector<CpuidSite>& sites);
std::optional<std::vector<CpuidSite>> decode_cpuid_sites(std::span<const uint8_t> bytes);

}  // namespace redrive
