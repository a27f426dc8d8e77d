// Tells apart the instructions at which a thread must not be left stopped from those at which it may be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace redrive {

enum class InstructionKind : uint8_t {
  plain,     // a thread may be left there; also everything that Capstone does not know, such as newer instructions
  repeated,  // a string instruction with a repeat prefix, which can be interrupted half-way
  event,     // it enters the kernel, traps, is recorded as an event, or stores or loads the trap flag (pushf, popf)
};

struct InstructionAt {
  InstructionKind kind = InstructionKind::plain;
  uint8_t size = 0;  // in bytes; 0 if Capstone does not know the instruction
};

class Disassembler;

inline constexpr size_t kLongestInstruction = 15;

// The instruction by which a thread says that it waits in a loop for another one (Intel SDM vol. 2, PAUSE).
inline constexpr uint8_t kPause[] = {0xf3, 0x90};

// Looks at one instruction after the other. Making one costs much more than looking. Not thread-safe.
class InstructionReader {
 public:
  InstructionReader();
  ~InstructionReader();
  InstructionReader(const InstructionReader&) = delete;
  InstructionReader& operator=(const InstructionReader&) = delete;

  // The instruction at the start of these bytes, of which the first kLongestInstruction are enough.
  InstructionAt read(std::span<const uint8_t> code) const;

 private:
  std::unique_ptr<Disassembler> disassembler_;
};

}  // namespace redrive
