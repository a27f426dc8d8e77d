// Headers of an ELF file for x86-64 (elf(5)). The file is untrusted: nothing past its end is read, and what is kept of
// it is bounded. This does not read all of the file: it finds sections and segments, which its users read.
#pragma once

#include <elf.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace redrive {

// Reads from an offset on; returns how many bytes there were.
using ReadFile = std::function<size_t(uint64_t offset, std::span<uint8_t> to)>;
ReadFile read_from(int file);                        // pread(2)
ReadFile read_from(std::span<const uint8_t> bytes);  // which must outlive it

// The whole value, or none.
template <typename T>
std::optional<T> read_value(const ReadFile& read, uint64_t offset) {
  T value;
  const std::span to(reinterpret_cast<uint8_t*>(&value), sizeof value);
  return read(offset, to) == sizeof value ? std::optional(value) : std::nullopt;
}

struct ElfFile {
  // Has no segments and sections if the file is not an ELF file.
  explicit ElfFile(const ReadFile& read);

  std::optional<uint64_t> offset_of(uint64_t address) const;

  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> segments;
  std::vector<Elf64_Shdr> sections;
};

}  // namespace redrive
