// Finds rdtsc, rdtscp and cpuid instructions in a program's files, for machines that cannot be told to trap them: some
// processors do not trap cpuid, and some virtual machines do not trap the counter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace redrive {

struct TrapSite {
  uint64_t offset;             // in the file
  int32_t instruction;         // TrappedInstruction::instruction
  std::vector<uint8_t> front;  // lengths of the instructions before it, the nearest first; at most kMaxFront
};
inline constexpr size_t kMaxFront = 4;

// These instructions of an ELF file that are certain: in a section of instructions, inside a function whose start
// is known from .eh_frame (LSB Core, "Exception Frames"), a symbol or Go's .gopclntab, and found when disassembling
// from there. Sorted. Empty for any other file.
std::vector<TrapSite> trap_sites(const Bytes& file);

// For storing them. Decoding gives nullopt unless the bytes are what encode() makes.
Bytes encode(const std::vector<TrapSite>& sites);
std::optional<std::vector<TrapSite>> decode_trap_sites(std::span<const uint8_t> bytes);

}  // namespace redrive
