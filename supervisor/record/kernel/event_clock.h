// The time of day of events: what an event that is made now gets as its time.
//
// Stopped calls have the time at which their stop was seen. Calls that were served in process are seen later. They are
// between two looks: at each, the time is read together with the last stamp that a call has taken (gate::Clock), so a
// call's stamp says between which two looks it was made, whatever the program does. In addition, calls note their times
// themselves (gate::Orders::notes_every). While calls are few, each does, and nobody looks. While they are many, a
// thread looks every millisecond, and each nth call notes its time, about one in 0.4 ms. Either way this takes about a
// hundredth of a processor.
//
// It also notes in the trace how far the wall clock is from the monotonic one, and when somebody sets it.
//
// The recorder's thread calls saw_stop(), look() and end_served(); begin_served() and at_record() belong to the thread
// that makes events of served calls, for which the recorder waits before it makes events itself.
#pragma once

#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "logstore/trace.h"
#include "supervisor/record/kernel/tracer.h"

namespace redrive {

class GateArena;

class EventClock {
 public:
  // All must outlive it. `arena`: null if no calls are served.
  EventClock(const Tracer& tracer, TraceWriter& writer, GateArena* arena);
  ~EventClock();
  EventClock(const EventClock&) = delete;
  EventClock& operator=(const EventClock&) = delete;

  // The time of the event that is made now; stays where it is.
  const EventTime& now() const { return now_; }

  // Reads the clock: all stops that are handled from now on were seen before. Looks whether the wall clock was set.
  Clock::time_point saw_stop();
  // The last stamp that a call had taken was this one when it was read, after the clock was read the last time.
  void look(uint64_t stamp);

  // Events are made of the served calls up to a look, in the order of their stamps, until end_served().
  void begin_served();
  // The next is of a record with this stamp, which has noted this time; 0: none.
  void at_record(uint64_t stamp, uint64_t time_ns);
  // Events that are made from now on are of stops again.
  void end_served();

 private:
  // Calls with later stamps were made after `before_ns`, those with this one or an earlier one before `after_ns`.
  struct Look {
    uint64_t stamp = 0;
    uint64_t before_ns = 0, after_ns = 0;
  };

  uint64_t read() const;
  void note_wall_clock(uint64_t now_ns);
  void add(const Look& look) REQUIRES(mutex_);
  void set_looking(bool looking, uint64_t calls_in_ms = 0) REQUIRES(mutex_);
  void adapt(const Look& look) REQUIRES(mutex_);
  void look_often();

  const Tracer& tracer_;
  TraceWriter& writer_;
  GateArena* const arena_;

  EventTime now_;
  // Used by the recorder's thread:
  uint64_t seen_ns_ = 0;     // when the clock was read the last time
  bool seen_used_ = false;   // end_served() has used that
  uint64_t checked_ns_ = 0;  // when the wall clock was looked at the last time
  std::optional<WallClockRecord> wall_clock_;
  // Used by the thread that makes events of served calls:
  std::vector<Look> known_;
  size_t passed_ = 0;  // how many of these have stamps before the current record's

  Mutex mutex_;
  Condition changed_;
  std::vector<Look> looks_ GUARDED_BY(mutex_);  // not yet known to the other thread
  Look last_ GUARDED_BY(mutex_);
  Look adapted_ GUARDED_BY(mutex_);
  bool looking_ GUARDED_BY(mutex_) = false;
  bool ending_ GUARDED_BY(mutex_) = false;
  // Null if no calls are served. The last member: it uses the others.
  std::optional<std::thread> looker_;
};

}  // namespace redrive
