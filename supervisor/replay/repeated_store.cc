#include "supervisor/replay/repeated_store.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace redrive {
namespace {

constexpr uint64_t kDirection = 0x400;  // the flag that has it count downwards
constexpr uint64_t kAtOnce = 1 << 20;   // bytes

}  // namespace

std::optional<RepeatedStore> RepeatedStore::at(const Memory& memory, const user_regs_struct& regs) {
  constexpr uint8_t kHalf = 0x66, kRepeat = 0xf3, kWide = 8;
  uint8_t code[4] = {};
  if (regs.eflags & kDirection || !memory.read_some(regs.rip, code, sizeof code)) return {};
  size_t next = 0;
  bool half = false, repeats = false;
  for (; next < 2 && (code[next] == kHalf || code[next] == kRepeat); ++next) {
    (code[next] == kHalf ? half : repeats) = true;
  }
  const bool wide = (code[next] & 0xf0) == 0x40 && code[next] & kWide;
  if ((code[next] & 0xf0) == 0x40 && regs.cs == kCodeSegment) ++next;
  const uint8_t operation = code[next];
  const bool copies = operation == 0xa4 || operation == 0xa5;
  if (!repeats || (!copies && operation != 0xaa && operation != 0xab)) return {};
  const bool bytes = (operation & 1) == 0;
  return RepeatedStore(copies, bytes ? 1 : wide ? 8 : half ? 2 : 4);
}

std::optional<uint64_t> RepeatedStore::rounds(const user_regs_struct& begun,
                                              const user_regs_struct& interrupted) const {
  if (interrupted.rcx > begun.rcx) return {};
  const uint64_t count = begun.rcx - interrupted.rcx, length = count * size_;
  const bool fits = interrupted.rdi - begun.rdi == length && interrupted.rsi - begun.rsi == (copies_ ? length : 0);
  return fits ? std::optional(count) : std::nullopt;
}

bool RepeatedStore::advance(const Memory& memory, user_regs_struct& regs, uint64_t rounds) const {
  const uint64_t length = rounds * size_;
  if (!(copies_ ? copy(memory, regs.rsi, regs.rdi, length) : fill(memory, regs.rdi, regs.rax, length))) return false;
  regs.rcx -= rounds;
  regs.rdi += length;
  if (copies_) regs.rsi += length;
  return true;
}

// Where the target begins in the source, it repeats what precedes it there.
bool RepeatedStore::copy(const Memory& memory, Address from, Address to, uint64_t length) const {
  const uint64_t distance = to > from ? std::max((to - from) / size_ * size_, size_) : kAtOnce;
  Bytes data;
  for (uint64_t at = 0; at < length; at += data.size()) {
    data.resize(std::min({length - at, distance, kAtOnce}));
    if (!memory.read(from + at, data.data(), data.size()) || !memory.write(to + at, data.data(), data.size())) {
      return false;
    }
  }
  return true;
}

bool RepeatedStore::fill(const Memory& memory, Address to, uint64_t value, uint64_t length) const {
  Bytes data(std::min(length, kAtOnce));
  for (size_t at = 0; at < data.size(); at += size_) std::memcpy(&data[at], &value, size_);
  for (uint64_t at = 0; at < length; at += data.size()) {
    data.resize(std::min<uint64_t>(data.size(), length - at));
    if (!memory.write(to + at, data.data(), data.size())) return false;
  }
  return true;
}

}  // namespace redrive
