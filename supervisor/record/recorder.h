// The record loop: takes the stops of all threads of the recorded programs one after the other, and has each handled by
// the part that it concerns. It owns the parts (see DESIGN.md for what each of them does), and connects them.
//
// One thread of a unit runs user code at a time: it holds the unit's baton. The baton changes hands only at events:
// when its holder enters a syscall that may sleep, or has had it for long while others wait. A thread that comes out of
// the kernel without the baton stays stopped until it gets it, and its event is logged then.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/record/adapted_files.h"
#include "supervisor/record/adapted_opens.h"
#include "supervisor/record/attacher.h"
#include "supervisor/record/births.h"
#include "supervisor/record/call_events.h"
#include "supervisor/record/checkpoint_copies.h"
#include "supervisor/record/checkpointer.h"
#include "supervisor/record/code_patching.h"
#include "supervisor/record/confined_calls.h"
#include "supervisor/record/ends.h"
#include "supervisor/record/event_clock.h"
#include "supervisor/record/file_copies.h"
#include "supervisor/record/findings.h"
#include "supervisor/record/forced_signals.h"
#include "supervisor/record/foreign_memory.h"
#include "supervisor/record/gate_stops.h"
#include "supervisor/record/image_worker.h"
#include "supervisor/record/intervals.h"
#include "supervisor/record/joiner.h"
#include "supervisor/record/layout_calls.h"
#include "supervisor/record/live_control.h"
#include "supervisor/record/lock_calls.h"
#include "supervisor/record/mapped_objects.h"
#include "supervisor/record/messages.h"
#include "supervisor/record/native_state.h"
#include "supervisor/record/object_sharing.h"
#include "supervisor/record/object_views.h"
#include "supervisor/record/outside_changes.h"
#include "supervisor/record/packet_rings.h"
#include "supervisor/record/placement.h"
#include "supervisor/record/placer.h"
#include "supervisor/record/preempter.h"
#include "supervisor/record/private_views.h"
#include "supervisor/record/programs.h"
#include "supervisor/record/recorder_limits.h"
#include "supervisor/record/rest.h"
#include "supervisor/record/seen_processors.h"
#include "supervisor/record/served_calls.h"
#include "supervisor/record/signal_delivery.h"
#include "supervisor/record/state_capture.h"
#include "supervisor/record/stop_handler.h"
#include "supervisor/record/stop_queue.h"
#include "supervisor/record/stopped_calls.h"
#include "supervisor/record/thread_control.h"
#include "supervisor/record/tier_mapper.h"
#include "supervisor/record/tracee_calls.h"
#include "supervisor/record/tracees.h"
#include "supervisor/record/tracer.h"
#include "supervisor/record/tracer_answers.h"
#include "supervisor/record/trap_answers.h"
#include "supervisor/record/triggers.h"
#include "supervisor/record/turns.h"
#include "supervisor/record/window.h"
#include "supervisor/record/woken_calls.h"

namespace redrive {

class Recorder {
 public:
  // `cache`: holds what is known of files already, and is told what was learnt of them when run() ends; null if there
  // is none.
  Recorder(Tracer& tracer, TraceWriter& writer, Policy& policy, const RecorderLimits& limits,
           FileCache* cache = nullptr);

  // Starts `path` with these arguments, stopped before its first instruction.
  Result<void> launch(const std::string& path, const std::vector<std::string>& arguments);
  // Records a process that runs already, with its descendants, until they have ended, or are let go: when the limits
  // say so, or redrive is sent a signal that would end it.
  Result<void> attach(pid_t pid);
  // Records a process that is traced already, and is about to execute its program. `no_new_privs`: as in prctl(2).
  void adopt(pid_t pid, bool no_new_privs);
  // Runs until every tracee has ended.
  struct Tell {
    std::function<void(const LeftBehind&)> left_behind;  // once, if others live a moment longer than the program
    std::function<void(const Triggers::Happened&)> triggered = [](const Triggers::Happened&) {};
  };
  RecordingEnd run(const Tell& tell);

  // What others may ask while it runs.
  LiveControl& live() { return live_; }
  // What was refused, and what a replay may fail at. After run().
  const Findings& findings() const { return findings_; }

 private:
  void tick(bool may_rest);
  void end_rest(Clock::time_point now);
  void look_at_clocks();
  void wake_for_next();
  std::chrono::nanoseconds look_period() const;
  std::chrono::nanoseconds look_at(Unit& unit);
  void flush();
  bool is_to_let_go(Clock::time_point started);
  void end_units();
  RecordingEnd end_of_recording() const;

  Tracer& tracer_;
  TraceWriter& writer_;
  RecorderLimits limits_;
  const std::unique_ptr<GateArena> arena_;  // of the in-process tier; null: every call stops
  Clock::time_point next_tick_{}, next_look_{};
  bool write_failed_ = false;
  bool lets_go_ = false;  // of what it has attached to, as soon as it can

  // What the parts share. Each of these objects knows nothing of the others.
  StopQueue stops_;
  TraceeCalls calls_;
  TierMapper tier_mapper_;
  Placement placement_;
  SeenProcessors processors_;
  AdaptedFiles adapted_files_;
  Messages messages_;
  ImageWorker images_;
  MappedObjects objects_;
  CpuidAnswers answers_;
  EventClock event_clock_;
  Triggers triggers_;
  Tracees tracees_;
  Findings findings_;
  ThreadControl control_;
  Intervals intervals_;

  // The parts. Each names in its constructor what it touches.
  FileCopies files_;
  ObjectViews object_views_;
  PrivateViews private_views_;
  OutsideChanges outside_;
  ObjectSharing object_sharing_;
  CodePatching patching_;
  NativeState native_;
  PacketRings packet_rings_;
  LayoutCalls layout_;
  ForeignMemory foreign_;
  StateCapture capture_;
  CheckpointCopies copies_;
  Checkpointer checkpointer_;
  Preempter preempter_;
  ForcedSignals forced_;
  WokenCalls woken_;
  TrapAnswers traps_;
  SignalDelivery signals_;
  CallEvents events_;
  GateStops gate_stops_;
  Joiner joiner_;
  Births births_;
  Programs programs_;
  Ends ends_;
  Placer placer_;
  TracerAnswers traced_;
  AdaptedOpens adapted_;
  LockCalls locks_;
  ConfinedCalls confined_;
  Turns turns_;
  Attacher attacher_;
  StoppedCalls stopped_calls_;
  StopHandler handler_;
  Window window_;
  Rest rest_;
  LiveControl live_;
  // The last member: its thread uses the others.
  ServedCalls served_;
};

}  // namespace redrive
