// Makes an event of each system call: open_call() at its entry; at its exit close_stopped(), or close_served() if it
// was served inside the program. The latter asks nothing of the thread, which goes on: its memory is what the record
// holds, unless the kernel has written more than the call says: then the thread stops.
#pragma once

#include "supervisor/record/messages/messages.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Findings;
class ObjectSharing;
class OutsideChanges;
class LayoutCalls;
class ForeignMemory;
class ForcedSignals;
class PacketRings;
class Triggers;

class CallEvents {
 public:
  CallEvents(const RecorderLimits& limits, Messages& messages, Findings& findings, ObjectSharing& object_sharing,
             OutsideChanges& outside, LayoutCalls& layout, ForeignMemory& foreign, ForcedSignals& forced,
             PacketRings& packet_rings)
      : limits_(limits),
        messages_(messages),
        findings_(findings),
        object_sharing_(object_sharing),
        outside_(outside),
        layout_(layout),
        foreign_(foreign),
        forced_(forced),
        packet_rings_(packet_rings) {}

  // These are told what programs write.
  void watch_writes(Triggers& triggers) { triggers_ = &triggers; }
  // Opens the event of the thread's call, to be filled in.
  Event& open_event(Thread& thread);
  // A call begins, which thread.entry, args and row describe; `memory` is the thread's at its entry.
  void open_call(Thread& thread, const Memory& memory);
  // A call that was opened ends, and its thread is stopped there.
  void close_stopped(Thread& thread, int64_t result);
  // ... and was served. `memory`: what its record holds. `times`, `cycle`: how many calls it stands for, as in Event.
  void close_served(Thread& thread, const gate::Record& record, uint64_t times, uint32_t cycle, const Memory& memory);
  // What the thread's call has changed in a file that others have mapped. Without a result, the thread was killed in
  // it.
  void note_object_change(Thread& thread, std::optional<int64_t> result, Event& event);
  // What is behind the descriptor in an argument, valid until the next call; null if that cannot be told.
  const Endpoint* endpoint(Thread& thread, int fd_arg);
  // No thread of the unit runs any more, and all that it received is known.
  void end_messages(const Unit& unit);

 private:
  // `wrote_more`: as in outputs().
  Event& begin_close(Thread& thread, int64_t result, const Memory& memory, bool wrote_more);
  void keep_writable(const Thread& thread);
  void write_outputs(Thread& thread, const Memory& memory, Event& event);
  void note_written(const Thread& thread, int64_t result, const Memory& memory);
  void receive(Thread& thread, int64_t result, const Memory& memory, Event& event);
  void note_effects(Thread& thread, int64_t result, const Memory& memory, Event& event);
  static void end_close(Thread& thread, int64_t result, uint64_t times, uint32_t cycle);

  const RecorderLimits& limits_;
  Messages& messages_;
  Findings& findings_;
  ObjectSharing& object_sharing_;
  OutsideChanges& outside_;
  LayoutCalls& layout_;
  ForeignMemory& foreign_;
  ForcedSignals& forced_;
  PacketRings& packet_rings_;
  Triggers* triggers_ = nullptr;
  // Reused memory:
  std::vector<Span> spans_;
  Bytes scratch_;
};

// The thread's call, as Messages takes it. `memory` is the thread's.
Messages::Call message_call(Thread& thread, const Memory& memory);

}  // namespace redrive
