// Finds cpuid instructions in a program's files, for processors that cannot be told to trap them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace redrive {

struct CpuidSite {
  uint64_t offset;             // in the file
  std::vector<uint8_t> front;  // lengths of the instructions before it, the nearest first; at most kMaxFront
};
inline constexpr size_t kMaxFront = 4;

// The cpuid instructions of an ELF file that are certain: in a section of instructions, inside a function whose start
// is known from .eh_frame (LSB Core, "Exception Frames") or Go's .gopclntab, and found when disassembling from there.
// Sorted. Empty for any other file.
std::vector<CpuidSite> cpuid_sites(const Bytes& file);

// For storing them. Decoding gives nullopt unless the bytes are what encode() makes.
Bytes encode(const std::vector<CpuidSite>& sites);
std::optional<std::vector<CpuidSite>> decode_cpuid_sites(std::span<const uint8_t> bytes);

}  // namespace redrive
