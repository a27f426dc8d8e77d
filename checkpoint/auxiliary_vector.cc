#include "checkpoint/auxiliary_vector.h"

#include <elf.h>

#include <cstring>

namespace redrive {
namespace {

constexpr size_t kEntry = sizeof(Elf64_auxv_t);
constexpr size_t kMostEntries = 64;
constexpr uint64_t kMostNumber = 0xff;

uint64_t number_at(std::span<const uint8_t> bytes, size_t at) {
  uint64_t number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

// Entries that every program has, with values that no program changes.
bool has_program_headers(std::span<const uint8_t> stack, size_t at) {
  return number_at(stack, at) == AT_PHDR && number_at(stack, at + kEntry) == AT_PHENT &&
         number_at(stack, at + kEntry + sizeof(uint64_t)) == sizeof(Elf64_Phdr) &&
         number_at(stack, at + 2 * kEntry) == AT_PHNUM;
}

}  // namespace

Bytes find_auxiliary_vector(std::span<const uint8_t> stack) {
  constexpr size_t kStep = sizeof(uint64_t);
  if (stack.size() < 3 * kEntry) return {};
  for (size_t at = (stack.size() - 3 * kEntry) / kStep * kStep + kStep; at >= kStep;) {
    at -= kStep;
    if (!has_program_headers(stack, at)) continue;
    // What comes before it are addresses and zeros.
    size_t first = at;
    for (size_t entries = 0; first >= kEntry && entries < kMostEntries; ++entries) {
      const uint64_t before = number_at(stack, first - kEntry);
      if (before == AT_NULL || before > kMostNumber) break;
      first -= kEntry;
    }
    for (size_t end = first, entries = 0; end + kEntry <= stack.size() && entries < kMostEntries; ++entries) {
      const bool last = number_at(stack, end) == AT_NULL;
      end += kEntry;
      if (last) return {stack.begin() + static_cast<long>(first), stack.begin() + static_cast<long>(end)};
    }
  }
  return {};
}

std::optional<uint64_t> auxiliary_value(std::span<const uint8_t> vector, uint64_t number) {
  for (size_t at = 0; at + kEntry <= vector.size(); at += kEntry) {
    if (number_at(vector, at) == number) return number_at(vector, at + sizeof(uint64_t));
  }
  return std::nullopt;
}

}  // namespace redrive
