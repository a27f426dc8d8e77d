// The clock of a unit's intervals: CPU time of all its processes, plus what a replay additionally needs for served
// calls.
//
// Calls that were served in process become events later than they were made, many at a time. Then the clock is not read
// at each: it advances evenly, by one step for each call, from one reading to the next, of which the last is that at
// which they were taken off their ring (begin_served() to end_served()). clock_error_ns() says by how much that may be
// wrong.
//
// The recorder's thread may ask for CPU time (cpu_ns(), interval_cpu_ns()) while another one makes events of served
// calls, from begin_served() to end_served(): these touch different members. For all else it waits for that thread.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "supervisor/record/kernel/tracer.h"

namespace redrive {

class IntervalClock {
 public:
  // `tracer` must outlive it.
  explicit IntervalClock(const Tracer& tracer) : tracer_(tracer) {}

  // A process of the unit has been born.
  void add(pid_t pid) { cpu_ns_.emplace(pid, 0); }
  // A process has ended. What it has used when the clock was last asked stays in the sum.
  void remove(pid_t pid);
  // A process of the other clock's unit is in this one's from now on, with all that it has used, and counts as one that
  // has ended there.
  void take(IntervalClock& other, pid_t pid);

  // CPU time of all processes that the unit has had.
  uint64_t cpu_ns();

  // An interval begins now.
  void begin();
  // CPU time since the interval began, now, and when the clock showed `cpu_ns`.
  uint64_t interval_cpu_ns() { return cpu_ns() - base_ns_; }
  uint64_t interval_cpu_ns(uint64_t cpu_ns) const { return cpu_ns - std::min(cpu_ns, base_ns_); }
  // Time since the interval began; while served calls become events, that of the current call.
  uint64_t interval_ns() { return served_ns_ ? *served_ns_ : interval_cpu_ns() + replay_ns_; }
  // The same for an event: calls that are served from then on come later.
  uint64_t event_ns();
  // By how much one of the interval's event_ns() may differ from when the event was.
  uint64_t clock_error_ns() const { return error_ns_; }
  // The interval's replay will need this much more.
  void add_replay(uint64_t ns);

  // The clock was read when this many of the calls to come had been made, and showed this CPU time since the interval
  // began.
  struct Reading {
    uint64_t calls = 0;
    uint64_t cpu_ns = 0;
  };
  // Served calls become events, each of which costs a replay `call_ns`. The last of `readings` counts all of them;
  // there must be one. Calls ascend.
  void begin_served(std::vector<Reading> readings, uint64_t call_ns);
  // The next of them.
  void next_served();
  // `calls` more that are not events of their own have been made.
  void skip_served(uint64_t calls) { made_ += calls; }
  void end_served() { served_ns_.reset(); }

 private:
  // From one reading to the next.
  struct Stretch {
    Reading from, to;
    uint64_t from_ns = 0, to_ns = 0;  // on the interval's clock
  };

  void go_to(const Reading& reading);

  const Tracer& tracer_;
  std::map<pid_t, uint64_t> cpu_ns_;  // of each process that lives, when last asked for
  uint64_t ended_ns_ = 0;             // of those that do not
  uint64_t base_ns_ = 0;              // CPU time when the interval began
  uint64_t replay_ns_ = 0;
  uint64_t drained_ns_ = 0;  // the interval's clock when calls last were taken off a ring, or at a later event
  uint64_t error_ns_ = 0;
  // While served calls become events:
  std::optional<uint64_t> served_ns_;
  std::vector<Reading> readings_;
  size_t next_reading_ = 0;
  uint64_t call_ns_ = 0;
  uint64_t made_ = 0;              // calls
  uint64_t replay_before_ns_ = 0;  // replay_ns_ without them
  Stretch stretch_;
};

}  // namespace redrive
