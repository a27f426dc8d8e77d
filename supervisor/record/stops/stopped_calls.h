// System calls that stop their thread, from the entry to the exit: everything that is decided about a call is decided
// here, in this order.
#pragma once

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/memory/mapped_objects.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Findings;
class ThreadControl;
class Intervals;
class CheckpointCopies;
class Checkpointer;
class CallEvents;
class PrivateViews;
class ObjectSharing;
class LayoutCalls;
class ForeignMemory;
class SignalDelivery;
class ForcedSignals;
class WokenCalls;
class Joiner;
class Births;
class Ends;
class Placer;
class TracerAnswers;
class AdaptedOpens;
class PacketRings;
class LockCalls;
class ConfinedCalls;
class NativeState;
class StepHandover;
class Turns;

class StoppedCalls {
 public:
  StoppedCalls(Tracer& tracer, const RecorderLimits& limits, MappedObjects& objects, Findings& findings,
               ThreadControl& control, Intervals& intervals, CheckpointCopies& copies, Checkpointer& checkpointer,
               CallEvents& events, PrivateViews& private_views, ObjectSharing& object_sharing, LayoutCalls& layout,
               ForeignMemory& foreign, SignalDelivery& signals, ForcedSignals& forced, WokenCalls& woken,
               Joiner& joiner, Births& births, Ends& ends, Placer& placer, TracerAnswers& traced, AdaptedOpens& adapted,
               PacketRings& packet_rings, LockCalls& locks, ConfinedCalls& confined, NativeState& native,
               StepHandover& handover, Turns& turns)
      : tracer_(tracer),
        limits_(limits),
        objects_(objects),
        findings_(findings),
        control_(control),
        intervals_(intervals),
        copies_(copies),
        checkpointer_(checkpointer),
        events_(events),
        private_views_(private_views),
        object_sharing_(object_sharing),
        layout_(layout),
        foreign_(foreign),
        signals_(signals),
        forced_(forced),
        woken_(woken),
        joiner_(joiner),
        births_(births),
        ends_(ends),
        placer_(placer),
        traced_(traced),
        adapted_(adapted),
        packet_rings_(packet_rings),
        locks_(locks),
        confined_(confined),
        native_(native),
        handover_(handover),
        turns_(turns) {}

  // A call has stopped at its entry: records it and lets it happen, answers or refuses it, or does first what has to
  // come before.
  void enter(Thread& thread);
  // ... at its exit, and the thread has the baton.
  void leave(Thread& thread);
  // Answers the call as a kernel without it would. `row`: null if it has none.
  void refuse(Thread& thread, const SyscallRow* row);
  // Answers a call at its entry in the kernel's place, which does nothing about it.
  void answer_call(Thread& thread, int64_t result);

 private:
  void refuse_foreign(Thread& thread);

  Tracer& tracer_;
  const RecorderLimits& limits_;
  MappedObjects& objects_;
  Findings& findings_;
  ThreadControl& control_;
  Intervals& intervals_;
  CheckpointCopies& copies_;
  Checkpointer& checkpointer_;
  CallEvents& events_;
  PrivateViews& private_views_;
  ObjectSharing& object_sharing_;
  LayoutCalls& layout_;
  ForeignMemory& foreign_;
  SignalDelivery& signals_;
  ForcedSignals& forced_;
  WokenCalls& woken_;
  Joiner& joiner_;
  Births& births_;
  Ends& ends_;
  Placer& placer_;
  TracerAnswers& traced_;
  AdaptedOpens& adapted_;
  PacketRings& packet_rings_;
  LockCalls& locks_;
  ConfinedCalls& confined_;
  NativeState& native_;
  StepHandover& handover_;
  Turns& turns_;
};

}  // namespace redrive
