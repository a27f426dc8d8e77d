// Bytes of a stopped thread's stack that it does not use. What a thread calls for the recorder finds its arguments
// there, and leaves what it reads. The bytes are put back in the end.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"
#include "checkpoint/address_space.h"
#include "supervisor/tier/registers.h"

namespace redrive {

class StackPiece {
 public:
  // `memory`: the thread's, which must outlive this. `stack_pointer`: its rsp. `size`: in bytes.
  StackPiece(const Memory& memory, Address stack_pointer, size_t size)
      : memory_(memory), at_((stack_pointer - kRedZone - size) & ~Address{15}), covered_(size) {
    readable_ = memory.read(at_, covered_.data(), size);
  }
  ~StackPiece() {
    if (readable_) memory_.write(at_, covered_.data(), covered_.size());
  }
  StackPiece(const StackPiece&) = delete;
  StackPiece& operator=(const StackPiece&) = delete;

  // False: no stack is there, and nothing may be put there.
  bool readable() const { return readable_; }
  // Where it begins; a multiple of 16.
  Address at() const { return at_; }

 private:
  const Memory& memory_;
  Address at_;
  Bytes covered_;
  bool readable_ = false;
};

inline Error stack_unreadable() { return Error{"its stack cannot be read"}; }

}  // namespace redrive
