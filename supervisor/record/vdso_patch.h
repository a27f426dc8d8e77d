// The vDSO of a running process, whose functions read clocks and processors without a system call (vdso(7)). A program
// that runs already has kept their addresses, so they are replaced where they are by system calls, for a while.
//
// The pages that are written to become private ones of the process. After undo() they hold what they held before.
#pragma once

#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/unit_state.h"

namespace redrive {

class VdsoPatch {
 public:
  // What has to be written into the vDSO that is mapped there; no thread of the process may run in it. Fails if the
  // process has none, or one of another form.
  static Result<VdsoPatch> read(const Memory& memory, Address start, Address end);

  bool apply(const Memory& memory) const { return memory.write(start_, patched_.data(), patched_.size()); }
  bool undo(const Memory& memory) const { return memory.write(start_, original_.data(), original_.size()); }

  bool holds(Address ip) const { return start_ <= ip && ip < start_ + original_.size(); }
  // A syscall instruction that is there in both states.
  Address syscall_instruction() const { return instruction_; }
  // As an image has it.
  Mapping mapping() const;

 private:
  Address start_ = 0, instruction_ = 0;
  Bytes original_, patched_;
};

}  // namespace redrive
