// What role a file of machine code has for the programs that map it.
#pragma once

#include <cstdint>
#include <string>

namespace redrive {

enum class CodeFile : uint8_t {
  library,  // it has a name by which other files refer to it (elf(5), DT_SONAME)
  program,  // it has no such name and needs a dynamic linker (PT_INTERP): its system calls are in libraries
  other,    // a static program, a plugin, no ELF file, or one that cannot be read
};
CodeFile code_file(const std::string& path);

// A program that reads its own code must find what its file holds there. Nothing tells that a program does this. But
// few programs that are linked with libraries make system calls in their own code. So an instruction there is replaced
// only after it has stopped this often in an address space, in record and in replay, and no plan applies to it.
inline constexpr uint64_t kOwnCodeWorthPatching = 64;

}  // namespace redrive
