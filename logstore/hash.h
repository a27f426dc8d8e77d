// The trace's hashes: XXH3-64 protects records and blocks, XXH3-128 names contents. They detect damage, not forgery.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <span>
#include <string>

namespace redrive {

inline uint64_t hash64(std::span<const uint8_t> data) { return XXH3_64bits(data.data(), data.size()); }

inline std::string hex(const XXH128_hash_t& hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint64_t half : {hash.high64, hash.low64}) {
    for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[(half >> shift) & 15];
  }
  return out;
}

}  // namespace redrive
