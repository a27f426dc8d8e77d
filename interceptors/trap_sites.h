// Finds rdtsc, rdtscp and cpuid instructions in a program's files, for machines that cannot be told to trap them: some
// processors do not trap cpuid, and some virtual machines do not trap the counter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "interceptors/trapped_instructions.h"

namespace redrive {

struct TrapSite {
  uint64_t offset;             // in the file
  int32_t instruction;         // TrappedInstruction::instruction
  std::vector<uint8_t> front;  // lengths of the instructions before it, the nearest first; at most kMaxFront
};
inline constexpr size_t kMaxFront = 4;

// Those of these instructions in an ELF file that do not trap, as far as they are certain: in a section of
// instructions, inside a function whose start is known from .eh_frame (LSB Core, "Exception Frames"), a symbol or Go's
// .gopclntab, and found when disassembling from there. Others are missed: they show what redrive would hide. Sorted.
// Empty for any other file.
std::vector<TrapSite> trap_sites(const Bytes& file, ProcessorTraps traps);

// For storing what was found in a file when these instructions did not trap. Decoding gives nullopt unless the bytes
// are what encode() makes.
struct FoundTrapSites {
  ProcessorTraps traps;
  std::vector<TrapSite> sites;
  std::vector<CpuidQuestion> questions;  // that programs have asked there; at most gate::kMaxAnswers
};
Bytes encode(const FoundTrapSites& found);
std::optional<FoundTrapSites> decode_trap_sites(std::span<const uint8_t> bytes);

}  // namespace redrive
