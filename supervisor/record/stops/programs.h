// Programs that begin (execve(2)): to which unit they belong, what the kernel has put there for them, and how the
// in-process tier gets into their memory.
#pragma once

#include "supervisor/record/code/tier_mapper.h"
#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/placement/placement.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class Tracees;
class Findings;
class ThreadControl;
class Intervals;
class Checkpointer;
class ServedCalls;
class CodePatching;
class ForcedSignals;
class NativeState;
class Placer;
class Turns;

class Programs {
 public:
  Programs(Tracer& tracer, TraceeCalls& calls, TierMapper& tier_mapper, const RecorderLimits& limits,
           Placement& placement, GateArena* arena, Tracees& tracees, Findings& findings, ThreadControl& control,
           Intervals& intervals, Checkpointer& checkpointer, ServedCalls& served, CodePatching& patching,
           ForcedSignals& forced, NativeState& native, Placer& placer, Turns& turns)
      : tracer_(tracer),
        calls_(calls),
        tier_mapper_(tier_mapper),
        limits_(limits),
        placement_(placement),
        arena_(arena),
        tracees_(tracees),
        findings_(findings),
        control_(control),
        intervals_(intervals),
        checkpointer_(checkpointer),
        served_(served),
        patching_(patching),
        forced_(forced),
        native_(native),
        placer_(placer),
        turns_(turns) {}

  // A process has executed a program; its threads but the caller are gone, and the caller has the leader's number now.
  // A process that leaves a unit in which others remain becomes a unit of its own.
  void executed(pid_t pid, pid_t former_tid);
  // Gives a forked child a slot of its own in place of its parent's (TierMapper::inherit()).
  Result<void> inherit_gate(Thread& thread, const user_regs_struct& regs, std::shared_ptr<RecordedGate> gate);

 private:
  void begin_program(Thread& thread);
  Result<void> map_gate(Thread& thread, const user_regs_struct& regs, Address vdso,
                        const std::vector<Mapping>& mappings);
  static TierMapper::Tracee tracee_of(Thread& thread);

  Tracer& tracer_;
  TraceeCalls& calls_;
  TierMapper& tier_mapper_;
  const RecorderLimits& limits_;
  Placement& placement_;
  GateArena* arena_;
  Tracees& tracees_;
  Findings& findings_;
  ThreadControl& control_;
  Intervals& intervals_;
  Checkpointer& checkpointer_;
  ServedCalls& served_;
  CodePatching& patching_;
  ForcedSignals& forced_;
  NativeState& native_;
  Placer& placer_;
  Turns& turns_;
};

}  // namespace redrive
