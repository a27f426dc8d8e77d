// Whether all that is recorded hardly uses a processor. The recorder then need not look at it every few milliseconds:
// the kernel interrupts it as soon as a process has used some CPU time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <unordered_set>

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/recorded.h"

namespace redrive {

class GateStops;
class ImageWorker;
class Intervals;
class Tracees;
struct Unit;

// Between two ticks while it rests.
inline constexpr Clock::duration kLongestTick = std::chrono::seconds(1);

class Rest {
 public:
  Rest(Tracer& tracer, Tracees& tracees, const ImageWorker& images, const Intervals& intervals, GateStops& gate_stops)
      : tracer_(tracer), tracees_(tracees), images_(images), intervals_(intervals), gate_stops_(gate_stops) {}

  // Call this at each tick. Returns after what time the next one is to come if little happens; it rests then.
  std::optional<Clock::duration> go_on(Clock::time_point now, Clock::duration longest_tick) REQUIRES(recorded);
  bool rests() const { return since_.has_value(); }
  // The thread has stopped, which has been handled. False if the rest must end.
  bool outlasts_stop(pid_t tid) REQUIRES(recorded);
  // A tick is to come as if it did not rest.
  void end(Clock::time_point now);

 private:
  uint64_t cpu_ns() const;
  bool stores_images() const;
  bool wakes_when_used(const Unit& unit);
  bool can_rest(Unit& unit) REQUIRES(recorded);

  Tracer& tracer_;
  Tracees& tracees_;
  const ImageWorker& images_;
  const Intervals& intervals_ GUARDED_BY(recorded);
  GateStops& gate_stops_ GUARDED_BY(recorded);
  uint64_t used_ns_ = 0;   // CPU time of all units, at the last tick
  int quiet_ = 0;          // ticks before which little was used
  bool was_long_ = false;  // the last rest
  std::optional<Clock::time_point> since_;
  std::unordered_set<pid_t> watched_;  // processes that interrupt the rest when they have used CPU time
};

}  // namespace redrive
