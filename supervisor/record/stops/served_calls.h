// The calls that were served inside programs: takes their records off the rings, and has events made of them in the
// order in which they happened, here or on a separate thread.
//
// While that thread is not idle, no other may look at what is recorded: drain() waits for it.
#pragma once

#include "base/write_behind.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/record/code/recorded_gate.h"
#include "supervisor/record/code/ring_reader.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class EventClock;
class Findings;
class CallEvents;
class FileCopies;
class TrapAnswers;

class ServedCalls {
 public:
  // Calls that an address space has served and that are not events yet.
  struct Served {
    std::shared_ptr<RecordedGate> gate;
    RingStretch stretch;
    // When the clock was read, with places in the stretch and times since the unit's interval began. The last one is
    // after all complete records.
    std::vector<RecordedGate::Look> looks;
    Thread* thread;  // that has made the call of the record; null before the first

    // Gate::canonical() of the instruction that made the record.
    Address site() const;
  };

  ServedCalls(const RecorderLimits& limits, GateArena* arena, EventClock& event_clock, CpuidAnswers& answers,
              Findings& findings, CallEvents& events, FileCopies& files, TrapAnswers& traps);

  // An address space in which calls are served from now on.
  void add(const std::shared_ptr<RecordedGate>& gate) { gates_.push_back(gate); }
  // Whether events are made on a thread of their own.
  bool has_maker() const { return event_maker_ != nullptr; }
  // Whether that thread has nothing to do.
  bool idle() const { return event_maker_->idle(); }
  // Call this before a decision that may rest on what is a tick old. Waits for the thread; without one, it is drain().
  void settle();

  // Empties the ring of what was taken off it, if no other thread of the unit runs user code. The thread is stopped at
  // a syscall, not in the middle of the code that writes records.
  void empty_ring(const Thread& thread);
  // Goes to the next record, if the tier wrote what is there: the program could have written there, too.
  void next_record(Served& served);
  // Makes events of what was taken, in the order in which it happened.
  void make_events(std::vector<Served>& sources);
  // Notes how much CPU time units have used, so that times of what they do are closer to the truth. False if all rest.
  bool look_at_clocks();
  // All that was served so far becomes events.
  void drain();
  // All that was served so far becomes events on another processor, while the programs go on; or here, if there is much
  // of it. Until then nothing else looks at what is recorded.
  void make_events_behind();
  // The unit's clock follows the records from now on, until IntervalClock::end_served().
  void begin_served(const Served& served) { begin_served({&served, 1}); }
  // The record's call begins. False if it is not one that is served: then the program wrote the record.
  bool open_served(Served& served);
  // The program has written into memory that it shares with the recorder: nothing is served there any more.
  void break_gate(RecordedGate& gate);

 private:
  std::vector<Served> take_served();
  void begin_served(std::span<const Served> of_unit);
  void drop(Served& served);
  void add_served_trap(Served& served);
  void close_served(const Served& served);

  const RecorderLimits& limits_;
  GateArena* arena_;
  EventClock& event_clock_;
  CpuidAnswers& answers_;
  Findings& findings_;
  CallEvents& events_;
  FileCopies& files_;
  TrapAnswers& traps_;
  StretchCopies stretch_copies_;  // the records of batches of which the thread has not made events yet
  std::vector<std::weak_ptr<RecordedGate>> gates_;
  // Null: events are made where drain() is called. The last member: its thread uses the others.
  std::unique_ptr<WriteBehind<std::vector<Served>>> event_maker_;
};

}  // namespace redrive
