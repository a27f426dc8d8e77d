// The calls that were served inside programs: takes their records off the rings, and has events made of them in the
// order in which they happened, here or on a separate thread. That thread has the right to what is recorded
// (recorded.h) from make_events_behind() on, until TakenBack.
#pragma once

#include "base/write_behind.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/record/code/recorded_gate.h"
#include "supervisor/record/code/ring_reader.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/recorded.h"
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
  // Call this before a decision that may rest on what is a tick old. Without that thread, it is drain().
  void settle() REQUIRES(recorded);
  // For parts that are entered only by a record loop that has the right.
  void check_taken_back() const ASSERTS(recorded) { ASSERT(!event_maker_ || event_maker_->idle()); }

  // Empties the ring of what was taken off it, if no other thread of the unit runs user code. The thread is stopped at
  // a syscall, not in the middle of the code that writes records.
  void empty_ring(const Thread& thread);
  // Goes to the next record, if the tier wrote what is there: the program could have written there, too.
  void next_record(Served& served) REQUIRES(recorded);
  // Makes events of what was taken, in the order in which it happened.
  void make_events(std::vector<Served>& sources) REQUIRES(recorded);
  // Notes how much CPU time units have used, so that times of what they do are closer to the truth. False if all rest.
  bool look_at_clocks();
  // All that was served so far becomes events.
  void drain() REQUIRES(recorded);
  // All that was served so far becomes events on another processor, while the programs go on; or here, if there is much
  // of it.
  void make_events_behind() EXCLUDES(recorded);
  // The unit's clock follows the records from now on, until IntervalClock::end_served().
  void begin_served(const Served& served) REQUIRES(recorded) { begin_served({&served, 1}); }
  // The record's call begins. False if it is not one that is served: then the program wrote the record.
  bool open_served(Served& served) REQUIRES(recorded);
  // The program has written into memory that it shares with the recorder: nothing is served there any more.
  void break_gate(RecordedGate& gate) REQUIRES(recorded);

 private:
  friend class TakenBack;
  struct Taken {
    std::vector<Served> served;
    std::vector<std::shared_ptr<RecordedGate>> broken;  // into whose memory the program has written
  };

  void take_back();
  Taken take();
  void break_gates(const Taken& taken) REQUIRES(recorded);
  void begin_served(std::span<const Served> of_unit) REQUIRES(recorded);
  void drop(Served& served) REQUIRES(recorded);
  void add_served_trap(Served& served) REQUIRES(recorded);
  void close_served(const Served& served) REQUIRES(recorded);

  const RecorderLimits& limits_;
  GateArena* arena_;
  EventClock& event_clock_;
  CpuidAnswers& answers_ GUARDED_BY(recorded);
  Findings& findings_ GUARDED_BY(recorded);
  CallEvents& events_ GUARDED_BY(recorded);
  FileCopies& files_ GUARDED_BY(recorded);
  TrapAnswers& traps_ GUARDED_BY(recorded);
  StretchCopies stretch_copies_;  // the records of batches of which the thread has not made events yet
  std::vector<std::weak_ptr<RecordedGate>> gates_;
  // Null: events are made where drain() is called. The last member: its thread uses the others.
  std::unique_ptr<WriteBehind<std::vector<Served>>> event_maker_;
};

// The record loop has the right to what is recorded as long as this exists: waits until no events are being made of
// served calls elsewhere.
class SCOPED_CAPABILITY TakenBack {
 public:
  explicit TakenBack(ServedCalls& served) ACQUIRES(recorded) { served.take_back(); }
  ~TakenBack() RELEASES() {}
  TakenBack(const TakenBack&) = delete;
  TakenBack& operator=(const TakenBack&) = delete;
};

}  // namespace redrive
