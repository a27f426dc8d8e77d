// A string instruction with a repeat prefix that stores: rep movs and rep stos (Intel SDM vol. 2). A thread that is
// interrupted may be left in the middle of one, where no breakpoint stops it: its address is that of the beginning.
#pragma once

#include <sys/user.h>

#include <optional>

#include "base/remote.h"

namespace redrive {

class RepeatedStore {
 public:
  // Nothing if another instruction is there, or this one does not count upwards in the thread's address space.
  static std::optional<RepeatedStore> at(const Memory& memory, const user_regs_struct& regs);

  // How many times it is repeated between its beginning and where it was interrupted; nothing if it does not come there
  // from this beginning. No other registers are looked at than those that it changes.
  std::optional<uint64_t> rounds(const user_regs_struct& begun, const user_regs_struct& interrupted) const;
  // Does what so many rounds do, in place of the thread, which has these registers. False, and nothing is changed in
  // them, if the memory is not there.
  bool advance(const Memory& memory, user_regs_struct& regs, uint64_t rounds) const;

 private:
  RepeatedStore(bool copies, uint64_t size) : copies_(copies), size_(size) {}
  bool copy(const Memory& memory, Address from, Address to, uint64_t length) const;
  bool fill(const Memory& memory, Address to, uint64_t value, uint64_t length) const;

  bool copies_;
  uint64_t size_;  // of what each round stores, in bytes
};

}  // namespace redrive
