// Births of threads and processes (clone(2)): from the call that makes them to their first instruction.
#pragma once

#include "supervisor/record/kernel/stop_queue.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/messages/messages.h"
#include "supervisor/record/placement/placement.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class Tracees;
class ThreadControl;
class Intervals;
class Checkpointer;
class ObjectViews;
class Programs;
class Ends;
class Turns;
class StopHandler;

class Births {
 public:
  Births(Tracer& tracer, StopQueue& stops, Placement& placement, Messages& messages, GateArena* arena, Tracees& tracees,
         ThreadControl& control, Intervals& intervals, Checkpointer& checkpointer, ObjectViews& object_views,
         Programs& programs, Ends& ends, Turns& turns, StopHandler& handler)
      : tracer_(tracer),
        stops_(stops),
        placement_(placement),
        messages_(messages),
        arena_(arena),
        tracees_(tracees),
        control_(control),
        intervals_(intervals),
        checkpointer_(checkpointer),
        object_views_(object_views),
        programs_(programs),
        ends_(ends),
        turns_(turns),
        handler_(handler) {}

  // The kernel does not report a child that is born with CLONE_UNTRACED, so this has it make the child without that
  // flag. A program that, as far as it knows, is not traced sees no difference.
  void hide_untraced(Thread& thread);
  // The child is noted in the open event, so nothing may happen in the unit until it is born: not even the end of
  // another process, or of its execve.
  void see_birth(Thread& thread);
  // The parent's call has made this thread or process.
  void born(Thread& parent, pid_t tid);
  // A thread that was born gets the baton for the first time.
  void start(Thread& thread);

 private:
  void let_write_number(pid_t child);

  Tracer& tracer_;
  StopQueue& stops_;
  Placement& placement_;
  Messages& messages_;
  GateArena* arena_;
  Tracees& tracees_;
  ThreadControl& control_;
  Intervals& intervals_;
  Checkpointer& checkpointer_;
  ObjectViews& object_views_;
  Programs& programs_;
  Ends& ends_;
  Turns& turns_;
  StopHandler& handler_;
};

// Puts CLONE_UNTRACED back into the argument of a clone3(2) that the kernel has read, in the memory of the parent or of
// its child.
void show_untraced(const Thread& parent, const Memory& memory);
// A birth has ended, or failed: what the kernel tells the parent through memory is an output of its call.
void note_birth(const Thread& parent, int64_t result, const Memory& memory, Event& event);

}  // namespace redrive
