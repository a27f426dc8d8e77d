#include "supervisor/code_file.h"

#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>

#include <memory>

#include "base/fd.h"

namespace redrive {

CodeFile code_file(const std::string& path) {
  elf_version(EV_CURRENT);
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const std::unique_ptr<Elf, int (*)(Elf*)> elf(elf_begin(file.get(), ELF_C_READ, nullptr), elf_end);
  size_t segments = 0;
  if (!elf || elf_getphdrnum(elf.get(), &segments) != 0) return CodeFile::other;
  CodeFile found = CodeFile::other;
  for (size_t i = 0; i < segments; ++i) {
    GElf_Phdr segment;
    if (!gelf_getphdr(elf.get(), static_cast<int>(i), &segment)) break;
    if (segment.p_type == PT_INTERP) found = CodeFile::program;
    if (segment.p_type != PT_DYNAMIC) continue;
    Elf_Data* const entries =
        elf_getdata_rawchunk(elf.get(), static_cast<int64_t>(segment.p_offset), segment.p_filesz, ELF_T_DYN);
    GElf_Dyn entry;
    for (int k = 0; entries && gelf_getdyn(entries, k, &entry) && entry.d_tag != DT_NULL; ++k) {
      if (entry.d_tag == DT_SONAME) return CodeFile::library;
    }
  }
  return found;
}

}  // namespace redrive
