// Capstone for 64-bit code. Making one costs much more than looking at an instruction. Not thread-safe.
#pragma once

#include <capstone/capstone.h>

#include <cstdint>
#include <span>

#include "base/assert.h"

namespace redrive {

class Disassembler {
 public:
  enum class Detail : uint8_t { none, operands };  // of instructions: without operands they are found faster

  explicit Disassembler(Detail detail = Detail::operands) {
    ASSERT(cs_open(CS_ARCH_X86, CS_MODE_64, &handle_) == CS_ERR_OK);
    if (detail == Detail::operands) cs_option(handle_, CS_OPT_DETAIL, CS_OPT_ON);
    instruction_ = cs_malloc(handle_);
  }
  ~Disassembler() {
    cs_free(instruction_, 1);
    cs_close(&handle_);
  }
  Disassembler(const Disassembler&) = delete;
  Disassembler& operator=(const Disassembler&) = delete;

  // The instruction at this offset; null if there is none. Valid until the next call. `start`: the code's address.
  const cs_insn* at(std::span<const uint8_t> code, uint64_t offset, uint64_t start = 0) const {
    const uint8_t* bytes = code.data() + offset;
    size_t left = code.size() - offset;
    uint64_t address = start + offset;
    return cs_disasm_iter(handle_, &bytes, &left, &address, instruction_) ? instruction_ : nullptr;
  }
  // Whether that instruction is of this kind (cs_group_type, x86_insn_group).
  bool in_group(uint8_t group) const { return cs_insn_group(handle_, instruction_, group); }

 private:
  csh handle_ = 0;
  cs_insn* instruction_ = nullptr;
};

}  // namespace redrive
