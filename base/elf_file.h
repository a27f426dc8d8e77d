// What an ELF file for x86-64 says of itself (elf(5)). The file is untrusted: nothing beyond its end is read, and what
// is kept of it is bounded. Not a reader of all of it: sections and segments are found here, and read by who wants
// them.
#pragma once

#include <elf.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace redrive {

// Reads from an offset on; how much of it there was.
using ReadFile = std::function<size_t(uint64_t offset, std::span<uint8_t> to)>;
ReadFile read_from(int file);                        // pread(2)
ReadFile read_from(std::span<const uint8_t> bytes);  // which must outlive it

// All of the value, or none.
template <typename T>
std::optional<T> read_value(const ReadFile& read, uint64_t offset) {
  T value;
  const std::span to(reinterpret_cast<uint8_t*>(&value), sizeof value);
  return read(offset, to) == sizeof value ? std::optional(value) : std::nullopt;
}

struct ElfFile {
  // Without segments and sections if it is none.
  explicit ElfFile(const ReadFile& read);

  std::optional<uint64_t> offset_of(uint64_t address) const;

  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> segments;
  std::vector<Elf64_Shdr> sections;
};

}  // namespace redrive
