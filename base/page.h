// A page of a process's memory, and where it lies.
#pragma once

#include <cstdint>
#include <cstring>

namespace redrive {

using Address = uint64_t;
inline constexpr uint64_t kPageSize = 4096;

constexpr uint64_t page_down(uint64_t value) { return value & ~(kPageSize - 1); }
constexpr uint64_t page_up(uint64_t value) { return page_down(value + kPageSize - 1); }

struct PageRef {
  uint32_t process = 0;  // serial within its unit
  Address address = 0;
  const uint8_t* data = nullptr;  // kPageSize bytes
};

// A page is zero if its first 8 bytes are zero and every byte equals the one 8 bytes before it.
inline bool is_zero_page(const uint8_t* page) {
  uint64_t first;
  std::memcpy(&first, page, sizeof first);
  return first == 0 && std::memcmp(page, page + sizeof first, kPageSize - sizeof first) == 0;
}

}  // namespace redrive
