// The baton of a unit: which of its threads may run user code, and which of them have stopped and wait for that, in the
// order in which they get it.
//
// A thread that has the baton may be in the kernel, and nobody may have it: then all others sleep, or are handled right
// now. Whether a thread that waits has something to do is up to the caller.
#pragma once

#include <deque>

#include "supervisor/record/tracer.h"

namespace redrive {

struct Thread;

class Baton {
 public:
  // Null: nobody.
  Thread* holder() const { return holder_; }
  bool is_held() const { return holder_ != nullptr; }
  // Since when the holder has had it, if it waited for it.
  Clock::time_point since() const { return since_; }
  // Whether others wait for it.
  bool is_awaited() const { return !waiting_.empty(); }

  // The thread has it without having waited: its program begins.
  void give_to(Thread& thread) { holder_ = &thread; }
  // Nobody has it.
  void give_up() { holder_ = nullptr; }
  // The thread waits for it, behind the others or before them.
  void queue(Thread& thread) { waiting_.push_back(&thread); }
  void queue_first(Thread& thread) { waiting_.push_front(&thread); }
  // The thread that has waited longest, which does not wait any more; null if nobody does.
  Thread* next();
  // A thread that has waited has it from now on.
  void take(Thread& thread, Clock::time_point now) { holder_ = &thread, since_ = now; }
  // The thread has ended.
  void forget(const Thread& thread);
  // All threads of the other baton's unit are in this one's: those that wait there do so here.
  void join(Baton& other);

 private:
  Thread* holder_ = nullptr;
  std::deque<Thread*> waiting_;
  Clock::time_point since_{};
};

}  // namespace redrive
