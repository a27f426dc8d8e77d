// When a unit takes a checkpoint, and how: by a copy of its process, by reading it while it is stopped, or by only
// noting the place (a virtual checkpoint). A checkpoint that cannot be taken is skipped and counted.
#pragma once

#include "logstore/trace.h"
#include "supervisor/record/checkpoints/image_worker.h"
#include "supervisor/record/checkpoints/state_capture.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/messages/messages.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Tracees;
class Findings;
class ThreadControl;
class Intervals;
class CheckpointCopies;

class Checkpointer {
 public:
  Checkpointer(Tracer& tracer, TraceWriter& writer, const RecorderLimits& limits, Messages& messages,
               ImageWorker& images, Tracees& tracees, Findings& findings, ThreadControl& control, Intervals& intervals,
               StateCapture& capture, CheckpointCopies& copies)
      : tracer_(tracer),
        writer_(writer),
        limits_(limits),
        messages_(messages),
        images_(images),
        tracees_(tracees),
        findings_(findings),
        control_(control),
        intervals_(intervals),
        capture_(capture),
        copies_(copies) {}

  // Whether the unit is to take one before its next event. Looking is expensive, so it is done only once in a while; in
  // between, the answer is false.
  bool is_due(Unit& unit);
  // Whether a unit may be copied for a checkpoint now (RecorderLimits::copies). One that cannot take its checkpoint
  // together with the others takes it later, others take theirs with it, and so on: 16 processes that talk all the time
  // had 675 checkpoints in place of 144 while only eight copies were allowed.
  bool can_copy() const;
  // If the policy looks for a good place, all units stop at each event, so that it can be asked there.
  void ask_at_each_event();
  // If the policy waits until all units have taken their checkpoints, it must not have to wait for a unit that sleeps:
  // such a unit is woken, takes its checkpoint and enters its call again. It is not woken in a call that would return
  // with part of its work done.
  void wake(Unit& unit);
  // The unit takes a checkpoint as soon as it can. It is woken for it as above, and stopped where it is if it computes.
  void request(Unit& unit);
  // At the entry of a call: takes a checkpoint, and has the thread enter its call again. No other checkpoint comes
  // before that call, however short the period is.
  void checkpoint(Thread& trigger);
  // Stores the image of the interval that has just begun.
  void add_image(Unit& unit, ImageJob job);
  // A virtual checkpoint, at a syscall's entry.
  void note_checkpoint(Process& process);
  // The image of a unit whose next event is not a syscall's entry: all of it is read while it is stopped, and its
  // interval has begun. `regs` are the trigger's if it has not run yet, `known` as in capture().
  void store_now(Unit& unit, Thread& trigger, const user_regs_struct* regs,
                 const StateCapture::KnownMappings& known = {});
  // The same, and the interval begins. False if the trigger was killed: then none begins.
  bool begin_interval(Unit& unit, CheckpointKind kind, Thread& trigger, const user_regs_struct* regs,
                      const StateCapture::KnownMappings& known = {});
  // Stores the image that a joined unit needs before any thread in it continues. The given thread is stopped; false if
  // it was killed.
  bool begin_joined_interval(Unit& unit, Thread& thread);

  static constexpr Clock::duration kSkippedInterval = std::chrono::milliseconds(10);
  // No more checkpoints are due.
  void stop() { stopped_ = true; }

  // Counts a checkpoint that could not be taken, and tells the policy, which may have relied on it. `until_next`: the
  // time until it is tried again.
  void note_skipped(Unit& unit, Clock::duration until_next = kSkippedInterval);

  // A unit has ended: if it has images, the next one that is stored says so.
  void note_end(const Unit& unit);

 private:
  void align(const Unit& with);
  void interrupt_sleep(Unit& unit);
  void store(Unit& unit, Result<ImageJob> job, const user_regs_struct* regs, Clock::time_point stopped_at);
  void hand_over(Unit& unit, ImageJob job, uint64_t bytes);

  Tracer& tracer_;
  TraceWriter& writer_;
  const RecorderLimits& limits_;
  Messages& messages_;
  ImageWorker& images_;
  Tracees& tracees_;
  Findings& findings_;
  ThreadControl& control_;
  Intervals& intervals_;
  StateCapture& capture_;
  CheckpointCopies& copies_;
  bool stopped_ = false;
  std::vector<UnitId> ended_with_image_;  // ended units that have images, the last of which did not say so
};

}  // namespace redrive
