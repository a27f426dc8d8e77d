// Where the intervals of units begin and end, in the log and in the trace. A unit has at most one interval at a time.
// No series and no call extends from one interval into the next.
#pragma once

#include "checkpoint/unit_state.h"
#include "logstore/trace.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/messages/messages.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Intervals {
 public:
  Intervals(Tracer& tracer, TraceWriter& writer, const RecorderLimits& limits, Messages& messages)
      : tracer_(tracer), writer_(writer), limits_(limits), messages_(messages) {}

  void begin(Unit& unit, CheckpointKind kind, Process& process, uint64_t pause_ns);
  void end(Unit& unit);
  // The thread is about to end its unit's interval together with its program, if the kernel lets it. What others'
  // calls may still write is left out: it could be there already.
  void note_end_state(const Thread& thread, const user_regs_struct& regs) const;
  // The unit's interval, which has just begun, starts from this state, whose pages are so many bytes.
  void note_image(Unit& unit, const UnitState& state, uint64_t memory_bytes);
  // A thread was born in the unit, or a process that stays in it: a replay makes it, too.
  void note_birth(Unit& unit, bool of_thread) const;
  // When the unit is asked for a checkpoint: early enough before T that it comes to a call, or is stopped where it is,
  // within T.
  uint64_t checkpoint_at_ns(const Unit& unit) const;
  // When the unit is stopped where it is for the checkpoint, if it has not come to a call by then.
  uint64_t stop_at_ns(const Unit& unit) const;
  // How much longer the unit may run until the next of these is due. UINT64_MAX if T is infinite.
  uint64_t until_due_ns(Unit& unit) const;

 private:
  // The period of an interval that begins with so many threads and so much memory: restoring these and executing the
  // interval must fit into the bound. Where they cannot, closer checkpoints would only cost; so would any closer than a
  // quarter of T.
  uint64_t period_ns(const Unit& unit, uint64_t memory_bytes) const;
  uint64_t start_ns(const Unit& unit, size_t mappings, uint64_t memory_bytes) const;

  Tracer& tracer_;
  TraceWriter& writer_;
  const RecorderLimits& limits_;
  Messages& messages_;
};

}  // namespace redrive
