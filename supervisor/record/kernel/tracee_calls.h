// System calls that a recorded thread makes for the recorder and not for its program: one at a syscall instruction of
// the program, or several with the code of the in-process tier.
//
// The thread must be stopped. Afterwards it is stopped right after the calls. It has its registers again after one
// call; after several, the caller sets them. Signals that come during the calls are held. It is an error if the thread
// is killed during them.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/kernel/held_signals.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/tier/gate.h"

namespace redrive {

// A syscall instruction in the vDSO that is mapped there; 0 if there is none.
Address vdso_syscall(const Memory& memory, Address vdso);

class TraceeCalls {
 public:
  // Waits for the next stop of a tracee. Nothing if it was killed; its end is then handled in its turn.
  using Wait = std::function<std::optional<Stop>(pid_t tid)>;
  TraceeCalls(Tracer& tracer, Wait wait) : tracer_(tracer), wait_(std::move(wait)) {}

  struct Caller {
    pid_t tid = -1;
    HeldSignals& signals;
  };
  // Makes a call at `instruction`, which stops like a call of the program. `base` holds the other registers. Returns
  // the call's result. `born`: as below.
  Result<int64_t> call_at(const Caller& caller, Address instruction, const user_regs_struct& base, long number,
                          std::initializer_list<uint64_t> args, pid_t* born = nullptr);
  // The same for rt_sigaction(2): what the thread's process does about a signal, and to change that. `memory`: the
  // thread's.
  Result<SignalAction> action(const Caller& caller, const Memory& memory, Address instruction,
                              const user_regs_struct& base, int signal);
  Result<void> set_action(const Caller& caller, const Memory& memory, Address instruction, const user_regs_struct& base,
                          int signal, const SignalAction& action);
  // Has the thread run on, one instruction after the other, until it is outside of this range, in which there is this
  // system call instruction. `memory`: the thread's.
  Result<void> step_out(const Caller& caller, const Memory& memory, const AddressRange& range, Address instruction);
  // Makes these calls, up to the first that fails, in an address space that has the tier's code. Returns the result of
  // the last one. `born` is set to the process that a clone among them has made.
  Result<int64_t> make(GateArena& arena, const Caller& caller, const user_regs_struct& base,
                       const std::vector<gate::InjectedCall>& calls, pid_t* born = nullptr);
  // The same, but the thread begins at `instruction`. Returns the registers at the stop after the calls.
  Result<user_regs_struct> make_from(GateArena& arena, const Caller& caller, const user_regs_struct& base,
                                     Address instruction, const std::vector<gate::InjectedCall>& calls,
                                     pid_t* born = nullptr);

 private:
  void hold(const Caller& caller, const Stop& stop);
  // Has the thread execute one instruction.
  Result<void> step(const Caller& caller);
  // What the thread's process ignored, and what was forced on the thread, is ignored again.
  Result<void> ignore_again(const Caller& caller, const Memory& memory, Address instruction, int signal);

  Tracer& tracer_;
  Wait wait_;
};

}  // namespace redrive
