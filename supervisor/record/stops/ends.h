// Ends of threads and processes, by a call or by a signal, and what is left then.
//
// The end of a process's first thread is reported only after those of the others have been waited for, so every stop
// that comes while one of them is awaited is taken, and kept. While a thread of the process still runs, the end is not
// logged: the calls that it makes until it is killed too come before.
//
// If other processes share its memory, a process that is killed ends at an event. So do its threads without the baton
// if SIGKILL comes from within the unit, because a call that sends a signal keeps the baton. If it comes from
// elsewhere, the thread that runs stops once more before the kernel takes its memory. It is then at a call that has not
// been made, or else it counts as preempted: others have seen what it has written, so an interval begins there.
#pragma once

#include "logstore/trace.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class StopQueue;
class Tracees;
class Triggers;
class Findings;
class ThreadControl;
class Intervals;
class Checkpointer;
class CallEvents;
class PrivateViews;
class OutsideChanges;
class ForeignMemory;
class GateStops;
class SignalDelivery;
class Joiner;
class Turns;

// What is left when the program that was launched has ended.
struct LeftBehind {
  int exit_status = 0;   // the program's
  size_t processes = 0;  // that it has started, and that are still alive
};

class Ends {
 public:
  Ends(Tracer& tracer, StopQueue& stops, TraceWriter& writer, Triggers& triggers, Tracees& tracees, Findings& findings,
       ThreadControl& control, Intervals& intervals, Checkpointer& checkpointer, CallEvents& events,
       PrivateViews& private_views, OutsideChanges& outside, ForeignMemory& foreign, GateStops& gate_stops,
       SignalDelivery& signals, Joiner& joiner, Turns& turns)
      : tracer_(tracer),
        stops_(stops),
        writer_(writer),
        triggers_(triggers),
        tracees_(tracees),
        findings_(findings),
        control_(control),
        intervals_(intervals),
        checkpointer_(checkpointer),
        events_(events),
        private_views_(private_views),
        outside_(outside),
        foreign_(foreign),
        gate_stops_(gate_stops),
        signals_(signals),
        joiner_(joiner),
        turns_(turns) {}

  // At the entry of exit or exit_group, which does not return.
  void end_thread(Thread& thread, bool whole_process);
  // Where processes share memory, others see what the kernel does when a thread is killed, so the thread's end must be
  // reported before the kernel takes its memory. The thread must be stopped.
  void ask_for_exit(Thread& thread);
  // A thread is about to end, and still has its memory.
  void exits(Thread& thread, TraceeEnd end);
  // A process is about to end. Adds what others find in its memory that no exit of a call says.
  void note_late_writes(const Process& process, std::vector<MemoryWrite>& writes);
  // The kernel has reported the end of a tracee.
  void ended(pid_t tid, TraceeEnd end);
  // Frees units that have ended. Call this at a stop, when nothing refers to them.
  void forget_ended();
  // The unit has become part of another one.
  void unit_ended(UnitId id) { ended_units_.push_back(id); }
  LeftBehind left_behind() const;

  // The process that the user has started.
  void set_root(pid_t pid) { root_ = pid; }
  pid_t root() const { return root_; }
  TraceeEnd root_end() const { return root_end_; }
  // Nothing while it lives.
  std::optional<Clock::time_point> root_ended() const { return root_ended_; }

  // Waits for the next stop of a tracee. Nothing if it was killed, and ends. That is handled in its turn, so what is
  // known of it stays until then.
  std::optional<Stop> wait_stop(pid_t tid);

 private:
  void note_unfinished_changes(const Process& process, Event& event);
  void show_by_another(Process& process);
  std::optional<Address> bring_to_place(Thread& thread);
  void note_end_of_process(Thread& thread, TraceeEnd end, std::optional<Address> call = {});

  Tracer& tracer_;
  StopQueue& stops_;
  TraceWriter& writer_;
  Triggers& triggers_;
  Tracees& tracees_;
  Findings& findings_;
  ThreadControl& control_;
  Intervals& intervals_;
  Checkpointer& checkpointer_;
  CallEvents& events_;
  PrivateViews& private_views_;
  OutsideChanges& outside_;
  ForeignMemory& foreign_;
  GateStops& gate_stops_;
  SignalDelivery& signals_;
  Joiner& joiner_;
  Turns& turns_;
  std::vector<UnitId> ended_units_;  // no thread runs in them any more
  pid_t root_ = -1;
  TraceeEnd root_end_;
  std::optional<Clock::time_point> root_ended_;
};

}  // namespace redrive
