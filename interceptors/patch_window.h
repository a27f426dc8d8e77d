// Where a jump to a trampoline can replace instructions around a syscall instruction, or behind rdtsc and rdtscp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace redrive {

inline constexpr uint64_t kSyscallSize = 2;  // of the instruction
inline constexpr uint64_t kJumpSize = 5;     // jmp rel32
inline constexpr uint64_t kShortJumpSize = 2;
inline constexpr uint8_t kShortJump = 0xeb;
constexpr bool is_counting_jump(uint8_t opcode) { return opcode >> 2 == 0x38; }  // loopne, loope, loop, jrcxz
constexpr bool is_short_jump(uint8_t opcode) {
  return opcode >> 4 == 7 || opcode == kShortJump || is_counting_jump(opcode);
}

// The length of the syscall, rdtsc or rdtscp instruction that these bytes begin with; 0 if they do not.
uint64_t replaceable_size(std::span<const uint8_t> code);

// Instructions that move to the trampoline. Either the instruction and `after` bytes behind it are replaced, or
// `before` bytes in front of a syscall instruction, and it stays. The moved instructions call nothing, and those in
// front touch no memory. They mean the same anywhere but for displacements and a short jump at the end. Behind one that
// leaves for good lies what nobody comes by.
struct PatchWindow {
  uint8_t before = 0;
  uint8_t after = 0;
  // Where 32-bit distances lie among the instructions behind, from the next one to memory or to where it jumps: bit k
  // for byte k.
  uint32_t displacements = 0;
  bool ends_in_jump = false;  // of two bytes, which has to become a longer one
};

// The executable segment of a file.
class CodeSegment {
 public:
  explicit CodeSegment(Bytes code);

  // For the syscall, rdtsc or rdtscp instruction at this offset; none if no window can be shown to be safe: something
  // may jump into it, or its instructions cannot move.
  std::optional<PatchWindow> window(uint64_t site) const;
  // The same for another instruction of two bytes. `front`: the lengths of the instructions in front of it, the nearest
  // first.
  std::optional<PatchWindow> window(uint64_t site, const std::vector<uint8_t>& front) const;

  // Reads memory of the program into `to`, from an offset on that counts from the segment's start and may lie outside
  // of it. How much of it there was.
  using Read = std::function<size_t(int64_t offset, std::span<uint8_t> to)>;
  // From any instruction on, that a replay is to stop at: `after` bytes are replaced, its own first. `start`: the
  // segment's address. None, too, where a switch nearby may come to an instruction behind the first one: what its table
  // holds is read.
  std::optional<PatchWindow> window_at(uint64_t place, uint64_t start, const Read& read) const;

 private:
  std::optional<PatchWindow> window_behind(uint64_t site, uint64_t size) const;
  // Behind the window's first byte.
  bool jumped_into(uint64_t first, uint64_t end) const;
  bool short_jump_into(uint64_t first, uint64_t end) const;
  bool is_jump(uint64_t opcode) const;
  bool table_leads_into(uint64_t first, uint64_t end, uint64_t start, const Read& read) const;

  Bytes code_;
  std::vector<bool> targets_;  // of anything that looks like a near jump or call
};

}  // namespace redrive
