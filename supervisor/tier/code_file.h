// What a file of machine code is to the programs that map it.
#pragma once

#include <cstdint>
#include <string>

namespace redrive {

enum class CodeFile : uint8_t {
  library,  // has a name by which others ask for it (elf(5), DT_SONAME)
  program,  // has none, and asks for a dynamic linker (PT_INTERP): its system calls are in libraries
  other,    // a static program, a plugin, no ELF file, or one that cannot be read
};
CodeFile code_file(const std::string& path);

// A program that reads its own code shall find what its file holds there. Nothing tells that it does, but few programs
// that are linked with libraries make calls in code of their own: there, an instruction is not replaced before it has
// stopped so often in an address space.
inline constexpr uint64_t kOwnCodeWorthPatching = 64;

}  // namespace redrive
