// How long a unit's running thread may go on when it is due to make an event: until it is stopped where it is
// (stops/DESIGN.md, Preemption). CPU time of the unit counts, because the thread may be waiting for the processor.
#pragma once

#include <cstdint>
#include <optional>

namespace redrive {

class Patience {
 public:
  // What a thread has when an event is due soon.
  static constexpr uint64_t kLeastNs = 10'000'000, kMostNs = 64 * kLeastNs;

  // Why an event is due.
  enum class Due : uint8_t {
    soon,    // another thread waits, or a signal: it most likely comes by itself
    at_once  // a checkpoint is late: the thread was asked for it long ago
  };
  struct Answer {
    bool interrupt = false;  // the thread now
    bool gave_up = false;    // for the first time: it is interrupted again and again, and makes no event
  };

  // What a unit has used so far.
  struct Used {
    uint64_t cpu_ns = 0;
    uint64_t faults_ns = 0;  // of that, by page faults
  };

  // No event is due, or one was made.
  void reset() { due_since_ns_.reset(); }
  // The recorder has looked: an event is due, and the unit has used this much CPU time by now. `can_stop`: an image,
  // which a stop needs, can be taken.
  Answer look(Due due, uint64_t cpu_ns, bool can_stop);
  // Call this whenever a thread was stopped because an event was due soon, and for how long. Such stops come less often
  // if they take most of the time, as for threads that compute in hundreds of megabytes: after each, the program's
  // memory is copied page by page when it is written to.
  void stopped(const Used& used, uint64_t pause_ns);

 private:
  uint64_t patience_ns_ = kLeastNs;
  Used used_{};  // at the last stop
  std::optional<uint64_t> due_since_ns_;
  uint64_t interrupted_ns_ = 0;
  bool gave_up_ = false;
};

}  // namespace redrive
