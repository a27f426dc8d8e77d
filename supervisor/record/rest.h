// Whether all that is recorded sleeps. The recorder then need not look at it every few milliseconds: each thread stops
// as soon as it wakes up, also one that sleeps in a served call, because the baton is taken from it.
#pragma once

#include <cstdint>
#include <optional>

#include "supervisor/record/kernel/tracer.h"

namespace redrive {

class GateStops;
class ImageWorker;
class Tracees;

class Rest {
 public:
  Rest(Tracees& tracees, ImageWorker& images, GateStops& gate_stops)
      : tracees_(tracees), images_(images), gate_stops_(gate_stops) {}

  // Call this at each tick. Returns after what time the next one is to come if everything sleeps now; it rests then.
  std::optional<Clock::duration> go_on(Clock::time_point now, Clock::duration longest_tick);
  // A thread has stopped.
  void end(Clock::time_point now);
  bool rests() const { return since_.has_value(); }

 private:
  bool all_sleep() const;
  bool take_batons();

  Tracees& tracees_;
  ImageWorker& images_;
  GateStops& gate_stops_;
  uint64_t events_ = 0;  // of all units, at the last tick
  int quiet_ = 0;        // ticks without events
  std::optional<Clock::time_point> since_;
  bool was_long_ = false;  // the last rest
};

}  // namespace redrive
