// The vDSO of a process, whose functions read clocks and processors without a system call (vdso(7)). They are replaced
// where they are by system calls: a program that runs already has kept their addresses, and a new one, among whose
// auxiliary values the vDSO is not, may find it by other means (proc_pid_auxv(5), PR_GET_AUXV, /proc/PID/maps).
//
// The pages that are written to become private ones of the process. After undo() they hold what they held before.
#pragma once

#include <vector>

#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/address_space.h"
#include "checkpoint/unit_state.h"

namespace redrive {

class VdsoPatch {
 public:
  // What has to be written into the vDSO of the process; no thread of it may run there. It may be patched already, by a
  // recorder that was killed. Fails if the process has none, or one of another form.
  static Result<VdsoPatch> of_process(pid_t pid, const Memory& memory);
  // The same for these bytes, which are mapped there and not patched.
  static Result<VdsoPatch> of(Address start, Bytes original);

  bool apply(const Memory& memory) const { return memory.write(start_, patched_.data(), patched_.size()); }
  bool undo(const Memory& memory) const { return memory.write(start_, original_.data(), original_.size()); }

  AddressRange range() const { return {start_, start_ + original_.size()}; }
  bool was_patched() const { return was_patched_; }
  // A syscall instruction that is there in both states.
  Address syscall_instruction() const { return instruction_; }
  // A handler may return after undo(), so what it returns to must be right in both states. If a thread that is
  // interrupted here has made its function's call, or has the result, it continues where the function returns, and
  // otherwise at the function's beginning. False if it need not be moved.
  bool move_out(const Memory& memory, Address& ip, Address& sp) const;
  // As an image has it.
  Mapping mapping() const;

 private:
  Address start_ = 0, instruction_ = 0;
  Bytes original_, patched_;
  std::vector<AddressRange> functions_;  // what the patch consists of
  bool was_patched_ = false;
};

}  // namespace redrive
