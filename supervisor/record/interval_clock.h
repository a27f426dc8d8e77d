// The clock of a unit's intervals: CPU time of all its processes, plus what a replay additionally needs for served
// calls.
//
// Calls that were served in process become events later than they were made, many at a time. Then the clock is not read
// at each: it advances evenly, by one step for each call, from its last reading to that at which they were taken off
// their ring (begin_served() to end_served()).
//
// The recorder's thread may ask for CPU time (cpu_ns(), interval_cpu_ns()) while another one makes events of served
// calls, from begin_served() to end_served(): these touch different members. For all else it waits for that thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>

#include "supervisor/record/tracer.h"

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
  // CPU time since the interval began.
  uint64_t interval_cpu_ns() { return cpu_ns() - base_ns_; }
  // Time since the interval began; while served calls become events, that of the current call.
  uint64_t interval_ns() { return served_ns_ ? *served_ns_ : interval_cpu_ns() + replay_ns_; }
  // The same for an event: calls that are served from then on come later.
  uint64_t event_ns();
  // The interval's replay will need this much more.
  void add_replay(uint64_t ns) { replay_ns_ += ns; }

  // This many served calls become events, each of which costs a replay `call_ns`. They were taken off the ring at
  // `interval_cpu_ns`.
  void begin_served(uint64_t interval_cpu_ns, uint64_t calls, uint64_t call_ns);
  // The next of them.
  void next_served() { *served_ns_ += step_ns_; }
  void end_served() { served_ns_.reset(); }

 private:
  const Tracer& tracer_;
  std::map<pid_t, uint64_t> cpu_ns_;  // of each process that lives, when last asked for
  uint64_t ended_ns_ = 0;             // of those that do not
  uint64_t base_ns_ = 0;              // CPU time when the interval began
  uint64_t replay_ns_ = 0;
  uint64_t drained_ns_ = 0;  // the interval's clock when calls last were taken off a ring, or at a later event
  std::optional<uint64_t> served_ns_;
  uint64_t step_ns_ = 0;
};

}  // namespace redrive
