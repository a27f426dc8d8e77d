// Where a program's files hold cpuid instructions, for processors that cannot be told to trap them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace redrive {

// Offsets in an ELF file of the cpuid instructions that are beyond doubt: in a section of instructions, inside a
// function that .eh_frame (LSB Core, "Exception Frames") or Go's .gopclntab tells the start of, and met when it is
// disassembled from there. Sorted. Empty for anything that is no such file.
std::vector<uint64_t> cpuid_sites(const Bytes& file);

}  // namespace redrive
