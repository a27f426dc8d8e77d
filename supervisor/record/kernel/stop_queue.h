// Stops that have come and are still to be handled, each tracee in its turn.
//
// All tracees that have stopped are taken from the kernel before the first is handled: waitpid(2) names the youngest
// first, and would starve the others while that one stops again and again. So a stop may be old when its turn comes:
// the tracee may have been killed, and then its end takes the place of its stop.
#pragma once

#include <sys/types.h>

#include <deque>
#include <optional>

#include "supervisor/record/kernel/tracer.h"

namespace redrive {

class StopQueue {
 public:
  // `tracer` must outlive it.
  explicit StopQueue(Tracer& tracer) : tracer_(tracer) {}

  // If the queue is empty, waits until a tracee has stopped or ended, and takes all that have. A signal to redrive ends
  // the wait as well. False if there is no stop and no tracee is left.
  bool fill();
  // The next one. Nothing if there is none.
  std::optional<Stopped> take();

  bool holds(pid_t tid) const;
  // The signal for which this tracee has stopped; 0 if it has not stopped for one, as far as is known here.
  int signal_of(pid_t tid) const;
  // A stop that came out of its turn is handled in it.
  void add(const Stopped& stopped) { stops_.push_back(stopped); }
  // What this tracee has stopped for is not handled any more.
  void forget(pid_t tid);
  // Waits until this tracee has stopped or ended, if its stop is not there already. It is handled in its turn.
  void await(pid_t tid);

 private:
  Tracer& tracer_;
  std::deque<Stopped> stops_;
};

}  // namespace redrive
