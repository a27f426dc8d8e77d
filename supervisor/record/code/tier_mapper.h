// Maps the in-process tier into address spaces of recorded programs (interceptors/inprocess/DESIGN.md): its code and
// its clock, which all share, and a slot for each. A thread there makes the calls for that, from a list, with one stop
// at the end. It opens the files through the supervisor's /proc; where it cannot (as another user, or in a container),
// it gets them through a socket. A new program has none of this code: at the report of its exec, a loader is written
// over its vDSO, which it does not use, for as long as the loader runs. So an exec has one stop more than without the
// tier.
#pragma once

#include <initializer_list>
#include <memory>
#include <vector>

#include "supervisor/record/code/recorded_gate.h"
#include "supervisor/record/kernel/tracee_calls.h"

namespace redrive {

class TierMapper {
 public:
  // Both must outlive it.
  TierMapper(Tracer& tracer, TraceeCalls& calls) : tracer_(tracer), calls_(calls) {}

  // A thread, and the process that it runs in.
  struct Tracee {
    TraceeCalls::Caller caller;
    pid_t pid = -1;
    int pidfd = -1;
    const Memory& memory;
  };
  struct Mapped {
    std::shared_ptr<RecordedGate> gate;  // null: the tier cannot be mapped, and calls stop
    Address brk = 0;                     // the program's break, if the tier was mapped
  };
  // Maps the tier into the address space of a new program, with memory for trampolines near its first instruction. The
  // thread must be stopped before that instruction, with these registers. The code that is mapped at `vdso` must not be
  // used by the program. Fails if the program was killed.
  Result<Mapped> map(const Tracee& tracee, GateArena& arena, Unit* unit, const user_regs_struct& regs, Address vdso,
                     const std::vector<Mapping>& mappings);
  // What a forked child gets in place of its parent's slot.
  enum class Slot : uint8_t { own, serves_nothing };
  // Gives a forked child a slot. Its thread must be stopped before its first instruction, with these registers, which
  // it keeps. `gate` is the child's. Fails if the child was killed.
  Result<Slot> inherit(const Tracee& tracee, RecordedGate& gate, const user_regs_struct& regs);

 private:
  using Call = std::function<Result<int64_t>(long number, std::initializer_list<uint64_t> args)>;
  static Result<std::vector<uint64_t>> hand_over(const Tracee& tracee, Address stack_pointer,
                                                 std::initializer_list<const SharedMemory*> files, const Call& call);

  Tracer& tracer_;
  TraceeCalls& calls_;
};

// A call that maps memory for trampolines at this address.
gate::InjectedCall map_trampolines_at(Address at);

}  // namespace redrive
