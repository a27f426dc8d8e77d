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
#include "supervisor/record/attach/attacher.h"
#include "supervisor/record/checkpoints/image_worker.h"
#include "supervisor/record/checkpoints/intervals.h"
#include "supervisor/record/checkpoints/state_capture.h"
#include "supervisor/record/code/tier_mapper.h"
#include "supervisor/record/disguise/adapted_files.h"
#include "supervisor/record/disguise/adapted_opens.h"
#include "supervisor/record/disguise/forced_signals.h"
#include "supervisor/record/front/launcher.h"
#include "supervisor/record/kernel/event_clock.h"
#include "supervisor/record/kernel/stop_queue.h"
#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/live_control.h"
#include "supervisor/record/memory/file_copies.h"
#include "supervisor/record/memory/mapped_objects.h"
#include "supervisor/record/memory/object_views.h"
#include "supervisor/record/memory/outside_changes.h"
#include "supervisor/record/memory/packet_rings.h"
#include "supervisor/record/memory/private_views.h"
#include "supervisor/record/messages/messages.h"
#include "supervisor/record/placement/placement.h"
#include "supervisor/record/placement/placer.h"
#include "supervisor/record/placement/seen_processors.h"
#include "supervisor/record/rest.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/settings/triggers.h"
#include "supervisor/record/stops/births.h"
#include "supervisor/record/stops/call_events.h"
#include "supervisor/record/stops/checkpoint_copies.h"
#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/stops/code_patching.h"
#include "supervisor/record/stops/confined_calls.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/foreign_memory.h"
#include "supervisor/record/stops/full_rings.h"
#include "supervisor/record/stops/gate_stops.h"
#include "supervisor/record/stops/joiner.h"
#include "supervisor/record/stops/layout_calls.h"
#include "supervisor/record/stops/lock_calls.h"
#include "supervisor/record/stops/loop_handover.h"
#include "supervisor/record/stops/native_state.h"
#include "supervisor/record/stops/object_sharing.h"
#include "supervisor/record/stops/preempter.h"
#include "supervisor/record/stops/programs.h"
#include "supervisor/record/stops/served_calls.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/record/stops/step_handover.h"
#include "supervisor/record/stops/steps.h"
#include "supervisor/record/stops/stop_handler.h"
#include "supervisor/record/stops/stopped_calls.h"
#include "supervisor/record/stops/tracer_answers.h"
#include "supervisor/record/stops/trap_answers.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/stops/woken_calls.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/record/window.h"

namespace redrive {

class Recorder {
 public:
  // `arena`: of the in-process tier; null: every call stops. `cache`: holds what is known of files already, and is told
  // what was learnt of them when run() ends; null if there is none.
  Recorder(Tracer& tracer, TraceWriter& writer, Policy& policy, const RecorderLimits& limits,
           std::unique_ptr<GateArena> arena, FileCache* cache = nullptr);

  // Starts `path` with these arguments, stopped before its first instruction. `filter`: Launcher::filter(), with the
  // same arena.
  Result<void> launch(const std::string& path, const std::vector<std::string>& arguments,
                      const Launcher::Filter& filter);
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
  void tick();
  std::chrono::nanoseconds look_at_all() REQUIRES(recorded);
  Clock::duration longest_tick() const;
  bool rest_outlasts(const std::optional<Stopped>& stop, Clock::time_point now);
  void end_rest(Clock::time_point now);
  void look_at_clocks();
  void wake_for_next();
  std::chrono::nanoseconds look_period() const;
  std::chrono::nanoseconds look_at(Unit& unit) REQUIRES(recorded);
  void flush();
  void take_signal(int signal);
  bool is_to_let_go(Clock::time_point now);
  void end_all() REQUIRES(recorded);
  void end_units() REQUIRES(recorded);
  RecordingEnd end_of_recording() const;

  Tracer& tracer_;
  TraceWriter& writer_;
  RecorderLimits limits_;
  const std::unique_ptr<GateArena> arena_;
  Clock::time_point next_tick_{}, next_look_{};
  bool write_failed_ = false;
  Clock::time_point lets_go_at_ = Clock::time_point::max();
  bool lets_go_ = false;  // of what it has attached to, as soon as it can

  // What the parts share. Each of these objects knows nothing of the others.
  StopQueue stops_;
  TraceeCalls calls_;
  TierMapper tier_mapper_;
  Placement placement_;
  SeenProcessors processors_;
  AdaptedFiles adapted_files_;
  Messages messages_ GUARDED_BY(recorded);
  PageBuffers page_buffers_;
  ImageWorker images_;
  MappedObjects objects_;
  CpuidAnswers answers_;
  EventClock event_clock_;
  Triggers triggers_;
  Tracees tracees_;
  Findings findings_;
  ThreadControl control_;
  Intervals intervals_ GUARDED_BY(recorded);

  // The parts. Each names in its constructor what it touches.
  FileCopies files_;
  ObjectViews object_views_;
  PrivateViews private_views_;
  OutsideChanges outside_ GUARDED_BY(recorded);
  ObjectSharing object_sharing_ GUARDED_BY(recorded);
  CodePatching patching_;
  NativeState native_;
  PacketRings packet_rings_;
  LayoutCalls layout_;
  ForeignMemory foreign_;
  StateCapture capture_;
  CheckpointCopies copies_;
  Checkpointer checkpointer_ GUARDED_BY(recorded);
  Preempter preempter_ GUARDED_BY(recorded);
  Steps steps_ GUARDED_BY(recorded);
  StepHandover handover_ GUARDED_BY(recorded);
  LoopHandover loops_ GUARDED_BY(recorded);
  ForcedSignals forced_;
  WokenCalls woken_;
  TrapAnswers traps_;
  SignalDelivery signals_;
  CallEvents events_ GUARDED_BY(recorded);
  GateStops gate_stops_ GUARDED_BY(recorded);
  FullRings full_rings_;
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
  Window window_ GUARDED_BY(recorded);
  Rest rest_;
  LiveControl live_;
  // The last member: its thread uses the others.
  ServedCalls served_;
};

}  // namespace redrive
