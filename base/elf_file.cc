#include "base/elf_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace redrive {
namespace {

// Reads a table of `count` entries of their usual size; returns the entries that exist.
template <typename T>
std::vector<T> read_table(const ReadFile& read, uint64_t offset, uint16_t count) {
  std::vector<T> table(count);
  const std::span to(reinterpret_cast<uint8_t*>(table.data()), count * sizeof(T));
  table.resize(count ? read(offset, to) / sizeof(T) : 0);
  return table;
}

}  // namespace

ReadFile read_from(int file) {
  return [file](uint64_t offset, std::span<uint8_t> to) -> size_t {
    size_t done = 0;
    while (done < to.size()) {
      const ssize_t got = pread(file, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  };
}

ReadFile read_from(std::span<const uint8_t> bytes) {
  return [bytes](uint64_t offset, std::span<uint8_t> to) -> size_t {
    if (offset >= bytes.size()) return 0;
    const auto part = bytes.subspan(offset, std::min<uint64_t>(to.size(), bytes.size() - offset));
    std::copy(part.begin(), part.end(), to.begin());
    return part.size();
  };
}

ElfFile::ElfFile(const ReadFile& read) {
  const auto found = read_value<Elf64_Ehdr>(read, 0);
  if (!found || std::memcmp(found->e_ident, ELFMAG, SELFMAG) != 0 || found->e_ident[EI_CLASS] != ELFCLASS64 ||
      found->e_machine != EM_X86_64) {
    return;
  }
  header = *found;
  segments = read_table<Elf64_Phdr>(read, header.e_phoff, header.e_phnum);
  sections = read_table<Elf64_Shdr>(read, header.e_shoff, header.e_shnum);
}

std::optional<uint64_t> ElfFile::offset_of(uint64_t address) const {
  for (const auto& segment : segments) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz) {
      return address - segment.p_vaddr + segment.p_offset;
    }
  }
  return std::nullopt;
}

}  // namespace redrive
