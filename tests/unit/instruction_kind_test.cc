// Instructions at which a thread must not be left: Capstone's answers against a decoder by hand of the same few.
#include "interceptors/instruction_kind.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "tests/unit/unit_test.h"

namespace redrive::instruction_kind_test {

namespace {

// By opcode, with up to four prefixes before a string instruction.
InstructionKind by_hand(const Bytes& code) {
  const auto at = [&](size_t index) { return index < code.size() ? code[index] : uint8_t{0}; };
  if (at(0) == 0x0f && (at(1) == 0x05 || at(1) == 0x34 || at(1) == 0x31 || at(1) == 0xa2 || at(1) == 0x0b)) {
    return InstructionKind::event;
  }
  if (at(0) == 0x0f && at(1) == 0x01 && at(2) == 0xf9) return InstructionKind::event;
  if (at(0) == 0x66 && at(1) == 0x0f && at(2) == 0x0b) return InstructionKind::event;
  if (at(0) == 0xcd || at(0) == 0xcc || (at(0) == 0x48 && at(1) == 0xcf)) {
    return InstructionKind::event;
  }
  if (at(0) == 0x9c || at(0) == 0x9d || (at(0) == 0x66 && (at(1) == 0x9c || at(1) == 0x9d))) {
    return InstructionKind::event;
  }
  bool repeats = false;
  size_t prefix = 0;
  for (; prefix < 4; ++prefix) {
    const uint8_t byte = at(prefix);
    if (byte != 0xf2 && byte != 0xf3 && byte != 0x66 && byte != 0x67 && byte >> 4 != 4) break;
    repeats |= byte == 0xf2 || byte == 0xf3;
  }
  const uint8_t opcode = at(prefix);
  const bool string = (opcode >= 0xa4 && opcode <= 0xa7) || (opcode >= 0xaa && opcode <= 0xaf);
  return repeats && string ? InstructionKind::repeated : InstructionKind::plain;
}

}  // namespace

TEST_CASE("instructions at which a thread must not be left are recognized") {
  struct Case {
    std::string what;
    Bytes code;
    InstructionKind kind;
  };
  constexpr auto kEvent = InstructionKind::event, kPlain = InstructionKind::plain;
  std::vector<Case> cases{
      {"syscall", {0x0f, 0x05}, kEvent},
      {"sysenter", {0x0f, 0x34}, kEvent},
      {"rdtsc", {0x0f, 0x31}, kEvent},
      {"ud2 with a prefix, which stands in for rdtscp", {0x66, 0x0f, 0x0b}, kEvent},
      {"rdtscp", {0x0f, 0x01, 0xf9}, kEvent},
      {"cpuid", {0x0f, 0xa2}, kEvent},
      {"ud2", {0x0f, 0x0b}, kEvent},
      {"int 0x80", {0xcd, 0x80}, kEvent},
      {"int3", {0xcc}, kEvent},
      {"pushfq", {0x9c}, kEvent},
      {"pushf of 16 bits", {0x66, 0x9c}, kEvent},
      {"popfq", {0x9d}, kEvent},
      {"popf of 16 bits", {0x66, 0x9d}, kEvent},
      {"iretq", {0x48, 0xcf}, kEvent},
      {"nop", {0x90}, kPlain},
      {"pause", {0xf3, 0x90}, kPlain},
      {"mov", {0x48, 0x89, 0xc7}, kPlain},
      {"mov of a constant that looks like syscall", {0xb8, 0x0f, 0x05, 0, 0}, kPlain},
      {"lock xadd", {0xf0, 0x0f, 0xc1, 0x07}, kPlain},
      {"movsd of SSE", {0xf2, 0x0f, 0x10, 0x07}, kPlain},
      {"movsd of SSE, to memory", {0xf2, 0x0f, 0x11, 0x07}, kPlain},
      {"cmpsd of SSE", {0xf2, 0x0f, 0xc2, 0x07, 0x01}, kPlain},
      {"movss of SSE", {0xf3, 0x0f, 0x10, 0x07}, kPlain},
      {"repz ret", {0xf3, 0xc3}, kPlain},
      {"endbr64", {0xf3, 0x0f, 0x1e, 0xfa}, kPlain},
      {"a jump back", {0xeb, 0xfe}, kPlain},
      {"no instruction", {0x06}, kPlain},
  };
  // Every string instruction, of every width and address size, with each repeat prefix and without.
  for (const uint8_t opcode : {0xa4, 0xa5, 0xa6, 0xa7, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf}) {
    for (const Bytes& prefixes : {Bytes{}, {0x66}, {0x67}, {0x66, 0x67}}) {
      for (const int rex : {0, 0x40, 0x48}) {
        for (const int repeat : {0, 0xf2, 0xf3}) {
          Case made{fmt::format("string {:#x}, rex {:#x}, repeat {:#x}", opcode, rex, repeat), {}, kPlain};
          if (repeat) made.code.push_back(static_cast<uint8_t>(repeat)), made.kind = InstructionKind::repeated;
          made.code.insert(made.code.end(), prefixes.begin(), prefixes.end());
          if (rex) made.code.push_back(static_cast<uint8_t>(rex));
          made.code.push_back(opcode);
          cases.push_back(std::move(made));
        }
      }
    }
  }
  const InstructionReader reader;
  for (auto& [what, code, kind] : cases) {
    CAPTURE(what);
    CHECK(by_hand(code) == kind);
    const InstructionAt alone = reader.read(code);
    CHECK(alone.kind == kind);
    if (what != "no instruction") CHECK_EQ(alone.size, code.size());
    code.resize(15, 0x90);  // other code follows
    CHECK(reader.read(code).kind == kind);
    CHECK_EQ(reader.read(code).size, alone.size);
  }
}

}  // namespace redrive::instruction_kind_test
