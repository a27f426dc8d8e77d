#include "supervisor/tier/code_file.h"

#include <fcntl.h>

#include <algorithm>

#include "base/elf_file.h"
#include "base/fd.h"

namespace redrive {
namespace {

bool has_name(const ReadFile& read, const Elf64_Phdr& dynamic) {
  constexpr uint64_t kMostEntries = 4096;
  for (uint64_t i = 0; i < std::min(dynamic.p_filesz / sizeof(Elf64_Dyn), kMostEntries); ++i) {
    const auto entry = read_value<Elf64_Dyn>(read, dynamic.p_offset + i * sizeof(Elf64_Dyn));
    if (!entry || entry->d_tag == DT_NULL) return false;
    if (entry->d_tag == DT_SONAME) return true;
  }
  return false;
}

}  // namespace

CodeFile code_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ReadFile read = read_from(file.get());
  CodeFile found = CodeFile::other;
  for (const auto& segment : ElfFile(read).segments) {
    if (segment.p_type == PT_INTERP) found = CodeFile::program;
    if (segment.p_type == PT_DYNAMIC && has_name(read, segment)) return CodeFile::library;
  }
  return found;
}

}  // namespace redrive
