// Whether all that is recorded sleeps. The recorder then need not look at it every few milliseconds: each thread stops
// as soon as it wakes up, also one that sleeps in a served call, because the baton is taken from it.
#pragma once

#include <cstdint>

#include "supervisor/record/kernel/tracer.h"

namespace redrive {

class GateStops;
class ImageWorker;
class Tracees;

class Rest {
 public:
  Rest(Tracees& tracees, ImageWorker& images, GateStops& gate_stops)
      : tracees_(tracees), images_(images), gate_stops_(gate_stops) {}

  // Call this at each tick, as long as it does not rest. True: it rests until a thread stops.
  bool begin(Clock::time_point now);
  // A thread has stopped.
  void end(Clock::time_point now);

 private:
  bool all_sleep() const;

  Tracees& tracees_;
  ImageWorker& images_;
  GateStops& gate_stops_;
  uint64_t events_ = 0;  // of all units, at the last tick
  int quiet_ = 0;        // ticks without events
  Clock::time_point began_{};
  bool was_long_ = false;  // the last rest
};

}  // namespace redrive
