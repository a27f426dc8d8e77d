// Forced preemption: a thread that has the baton and makes no event is stopped where it is. An interval begins there,
// with an image.
//
// A thread is preempted if it makes no event for so long as its unit's Patience allows, 10 ms of CPU time at first,
// while another thread waits or a signal is held for it; or if its checkpoint was requested T/32 ago. So that others
// have their turn, it is not interrupted amid a served call, which is an event soon, and might end early then.
//
// It is left where a replay can find it: outside the tier's code, not in a code segment of the program's own, and not
// within a repeated instruction. If it comes, within 256 steps, to an instruction that a jump can replace, it is
// stopped there.
#pragma once

#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/code_segments.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class Findings;
class ThreadControl;
class Intervals;
class StateCapture;
class CheckpointCopies;
class Checkpointer;
class SignalDelivery;
class Steps;
class Turns;

class Preempter {
 public:
  Preempter(Tracer& tracer, TraceeCalls& calls, const RecorderLimits& limits, GateArena* arena, Findings& findings,
            ThreadControl& control, Intervals& intervals, StateCapture& capture, CheckpointCopies& copies,
            Checkpointer& checkpointer, SignalDelivery& signals, Steps& steps, Turns& turns)
      : tracer_(tracer),
        calls_(calls),
        limits_(limits),
        arena_(arena),
        findings_(findings),
        control_(control),
        intervals_(intervals),
        capture_(capture),
        copies_(copies),
        checkpointer_(checkpointer),
        signals_(signals),
        steps_(steps),
        turns_(turns) {}

  // Interrupts the unit's running thread, which has the baton, if it has been due to make an event for long and has
  // not.
  void watch(Unit& unit, bool checkpoint_due);
  // The thread was interrupted in user code. False if it is not preempted, because it is at an event or about to make
  // one. Then it stays as it was, unless `handled` is set: it has been resumed.
  bool preempt(Thread& thread, bool& handled);
  // The thread continues from where it was preempted. If `signals`, a replay that comes by looks for this place, so
  // signals that are held for the thread, or that the kernel is about to deliver, come before it runs on. A signal that
  // comes later may find the thread with the same registers, but not with the same memory.
  void go_on(Thread& thread, bool signals);

 private:
  void note_cost(Unit& unit, Clock::duration pause);
  bool settle(Thread& thread, user_regs_struct& regs, bool& handled);
  bool leave(Thread& thread, const PatchedSite& loop, user_regs_struct& regs, bool& handled);

  Tracer& tracer_;
  TraceeCalls& calls_;
  const RecorderLimits& limits_;
  GateArena* arena_;
  Findings& findings_;
  ThreadControl& control_;
  Intervals& intervals_;
  StateCapture& capture_;
  CheckpointCopies& copies_;
  Checkpointer& checkpointer_;
  SignalDelivery& signals_;
  Steps& steps_;
  Turns& turns_;
  CodeSegments code_;
};

// The thread stands in user code, with these registers: the event. `times`: as in Preempted::stepped and waiting.
void add_preemption(Thread& thread, const user_regs_struct& regs, Preempted why, uint64_t times = 0);

}  // namespace redrive
