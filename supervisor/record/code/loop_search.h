// Finds out from the instructions that a thread executes whether it waits in a loop: one with a pause instruction, or
// one after whose round all of its registers are as before, twice, so that only memory can end it.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/remote.h"
#include "supervisor/tier/trampoline.h"

namespace redrive {

class LoopSearch {
 public:
  // Whether the thread waits in a loop, as far as is known before it executes the instruction at regs.rip. `xstate`:
  // reads its extended registers.
  bool comes_to(const user_regs_struct& regs, bool is_pause, const std::function<Bytes()>& xstate);

  struct Loop {
    SiteKind kind = SiteKind::pausing;
    std::vector<Address> instructions;  // those that are executed once in a round, in their order
  };
  // What was found. If no loop was, but a pause was executed, the loop may be longer: only the pause is known.
  Loop loop() const;

 private:
  // The registers were the same twice. At `end` it is known whether they are again.
  struct Round {
    size_t end, length;
    Bytes xstate;
  };
  bool repeats(const user_regs_struct& regs, const std::function<Bytes()>& xstate);
  Loop found(size_t first, SiteKind kind) const;

  std::vector<Address> executed_;
  std::unordered_map<uint64_t, size_t> states_;  // where the registers had this hash last, in executed_
  std::optional<size_t> pause_;                  // the first one, there
  std::optional<Round> round_;
  std::optional<Loop> loop_;
};

}  // namespace redrive
