// Finds out where a jump to a trampoline can replace the instructions around a syscall instruction, after rdtsc and
// rdtscp, or from any instruction on.
//
// A window is the syscall instruction and what follows it, up to a jump (a short one becomes a near one) or a return
// with the padding after it; or it is a `mov` of the call's number before it. Nothing may jump into it: short jumps are
// found by disassembling around it, near ones by whatever in the segment looks like one, and those of switches by the
// tables through which code nearby jumps. After the instruction nearly all instructions can move, but no calls and no
// landing pads. Before cpuid any that touch no memory can, because cpuid was found by disassembling from its function's
// start. A fault at a moved instruction is translated like a stop.
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

// The length of the syscall, rdtsc or rdtscp instruction at the start of these bytes; 0 if there is none.
uint64_t replaceable_size(std::span<const uint8_t> code);

// Instructions that move to the trampoline. Either the instruction and `after` bytes after it are replaced, or `before`
// bytes before a syscall instruction, which stays. The moved instructions contain no calls, and those before the
// instruction touch no memory. They mean the same at any address, except for displacements and a short jump at the end.
// Bytes after an instruction that leaves for good are never executed.
struct PatchWindow {
  uint8_t before = 0;
  uint8_t after = 0;
  // The places of 32-bit distances in the instructions after the site (from the next instruction to memory or to a
  // jump's target): bit k for byte k.
  uint32_t displacements = 0;
  bool ends_in_jump = false;  // of two bytes, which must become a longer one
};

// The executable segment of a file.
class CodeSegment {
 public:
  // Reads code into `to`, from this offset in the segment on. Returns how many bytes there were.
  using ReadCode = std::function<size_t(uint64_t offset, std::span<uint8_t> to)>;
  // Reads all of the code once, to find what jumps where, and what is near a site again when the site is asked for:
  // segments are large, and memory that is used for the first time is not cheap. The code must not change.
  CodeSegment(uint64_t size, ReadCode read);
  explicit CodeSegment(Bytes code);

  // The segment in a program that has mapped it: its address, and what reads the program's memory, in which the tables
  // of switches lie. The offset counts from the segment's start and may lie outside the segment. `read` returns how
  // many bytes there were.
  struct Mapped {
    uint64_t start = 0;
    std::function<size_t(int64_t offset, std::span<uint8_t> to)> read;
  };

  // The window for the syscall, rdtsc or rdtscp instruction at this offset. None if no window is known to be safe:
  // something may jump into it, a switch nearby too, or its instructions cannot move.
  std::optional<PatchWindow> window(uint64_t site, const Mapped& mapped) const;
  // The same where an instruction stands in for rdtsc or rdtscp, which has `size` bytes.
  std::optional<PatchWindow> counter_window(uint64_t site, uint64_t size, const Mapped& mapped) const;
  // The same for another instruction of two bytes. `front`: the lengths of the instructions before it, the nearest
  // first.
  std::optional<PatchWindow> window(uint64_t site, const std::vector<uint8_t>& front, const Mapped& mapped) const;
  // The same for any instruction at which a thread must stop, or be counted: `after` bytes from its start are replaced.
  std::optional<PatchWindow> window_at(uint64_t place, const Mapped& mapped) const;

 private:
  class Code;
  Code around(uint64_t place, uint64_t distance) const;
  std::optional<PatchWindow> window_behind(const Code& code, uint64_t site, uint64_t size, const Mapped& mapped) const;
  // Whether something jumps to a byte after the window's first one.
  bool jumped_into(const Code& code, uint64_t first, uint64_t end, const Mapped& mapped) const;
  bool table_leads_into(uint64_t first, uint64_t end, const Mapped& mapped) const;

  const ReadCode read_;
  std::vector<bool> targets_;  // of everything that looks like a near jump or call; one for each byte of the code
};

}  // namespace redrive
