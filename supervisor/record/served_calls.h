// The calls that were served inside programs: takes their records off the rings, and has events made of them in the
// order in which they happened, here or on a thread of its own.
//
// While that thread is not idle, nobody else may look at what is recorded: drain() waits for it.
#pragma once

#include "base/write_behind.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/record/recorded_gate.h"
#include "supervisor/record/recorder_limits.h"
#include "supervisor/record/ring_reader.h"
#include "supervisor/record/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class Findings;
class CallEvents;
class FileCopies;
class TrapAnswers;

class ServedCalls {
 public:
  // What an address space has served and is not events yet.
  struct Served {
    std::shared_ptr<RecordedGate> gate;
    RingStretch stretch;
    uint64_t cpu_ns;  // of the unit, since its interval began
    Thread* thread;   // that has made the call of the record; null before the first

    // Gate::canonical() of the instruction that the record is of.
    Address site() const;
  };

  ServedCalls(const RecorderLimits& limits, GateArena* arena, CpuidAnswers& answers, Findings& findings,
              CallEvents& events, FileCopies& files, TrapAnswers& traps);

  // An address space in which calls are served from now on.
  void add(const std::shared_ptr<RecordedGate>& gate) { gates_.push_back(gate); }
  // Whether events are made on a thread of their own.
  bool has_maker() const { return event_maker_ != nullptr; }
  // Whether that has nothing to do.
  bool idle() const { return event_maker_->idle(); }
  // Before something is decided that may rest on what is a tick old: waits for the thread; without one, drain().
  void settle();

  // The thread is stopped at a syscall, not amid the code that writes records. If no other of its unit runs user code,
  // what was taken off its ring is gone.
  void empty_ring(const Thread& thread);
  // Goes to the next record, if what is there is the tier's: the program could have written there.
  void next_record(Served& served);
  // Makes events of what was taken, in the order in which it happened.
  void make_events(std::vector<Served>& sources);
  // All that was served so far becomes events.
  void drain();
  // All that was served so far becomes events on another processor, while the programs go on; or here, if it is much.
  // Until then nothing but that looks at what is recorded.
  void make_events_behind();
  // Its unit's clock goes with the records from now on, until IntervalClock::end_served().
  void begin_served(const Served& served);
  // The record's call begins. False if it is none that is served: then the program wrote the record.
  bool open_served(Served& served);
  // The program has written into memory that it shares with the recorder: nothing is served there any more.
  void break_gate(RecordedGate& gate);

 private:
  std::vector<Served> take_served();
  void drop(Served& served);
  void add_served_trap(Served& served);
  void close_served(const Served& served);

  const RecorderLimits& limits_;
  GateArena* arena_;
  CpuidAnswers& answers_;
  Findings& findings_;
  CallEvents& events_;
  FileCopies& files_;
  TrapAnswers& traps_;
  StretchCopies stretch_copies_;  // what batches that the thread has not made yet are made of
  std::vector<std::weak_ptr<RecordedGate>> gates_;
  // Null: events are made where drain() is called. The last member: its thread uses the others.
  std::unique_ptr<WriteBehind<std::vector<Served>>> event_maker_;
};

}  // namespace redrive
