// System calls that a recorded thread makes for the recorder, and not for its program: one at an instruction of the
// program's, or several with the code of the in-process tier.
//
// The thread is stopped before, and stopped behind the calls after; its registers are then to be set again. Signals
// that come meanwhile are held. A thread that is killed meanwhile is an error, and nothing of it may be looked at any
// more.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "base/remote.h"
#include "base/result.h"
#include "supervisor/record/held_signals.h"
#include "supervisor/record/tracer.h"
#include "supervisor/tier/gate.h"

namespace redrive {

// A syscall instruction in the vDSO that is mapped there; 0 if there is none.
Address vdso_syscall(const Memory& memory, Address vdso);

class TraceeCalls {
 public:
  // The next stop of a tracee. Nothing if it has ended, which is then seen to.
  using Wait = std::function<std::optional<Stop>(pid_t tid)>;
  TraceeCalls(Tracer& tracer, Wait wait) : tracer_(tracer), wait_(std::move(wait)) {}

  struct Caller {
    pid_t tid = -1;
    HeldSignals& signals;
  };
  // Makes a call at `instruction`, whose stops are the same as of the program's own. `base`: the other registers.
  // Returns its result.
  Result<int64_t> call_at(const Caller& caller, Address instruction, const user_regs_struct& base, long number,
                          std::initializer_list<uint64_t> args);
  // Makes these calls, up to the first that fails, in an address space that has the tier's code. Returns the last one's
  // result. `born`: of a clone among them, its process.
  Result<int64_t> make(GateArena& arena, const Caller& caller, const user_regs_struct& base,
                       const std::vector<gate::InjectedCall>& calls, pid_t* born = nullptr);
  // The same, from the instruction on that makes them. Returns the registers at the stop behind them.
  Result<user_regs_struct> make_from(GateArena& arena, const Caller& caller, const user_regs_struct& base,
                                     Address instruction, const std::vector<gate::InjectedCall>& calls,
                                     pid_t* born = nullptr);

 private:
  void hold(const Caller& caller, const Stop& stop);

  Tracer& tracer_;
  Wait wait_;
};

}  // namespace redrive
