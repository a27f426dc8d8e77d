// The baton of a unit: the one thread that may run user code has it, and threads that have stopped wait for it in a
// queue.
//
// The thread that has the baton may also be in the kernel. Nobody has it while all threads sleep. This class does not
// know why a thread waits.
#pragma once

#include <deque>
#include <utility>

#include "supervisor/record/kernel/tracer.h"

namespace redrive {

struct Thread;

// A thread that has had the baton for this long gives it up at its next event, if others wait.
inline constexpr std::chrono::milliseconds kBatonSlice{5};

class Baton {
 public:
  // Null if nobody has the baton.
  Thread* holder() const { return holder_; }
  bool is_held() const { return holder_ != nullptr; }
  // When take() was last called.
  Clock::time_point since() const { return since_; }
  // Whether threads wait for it.
  bool is_awaited() const { return !waiting_.empty(); }

  // Gives it to a thread that did not wait, because its program begins.
  void give_to(Thread& thread) { holder_ = &thread; }
  // Takes it away from its holder.
  void give_up() { holder_ = nullptr; }
  // Puts a thread at the end of the queue, or at its front.
  void queue(Thread& thread);
  void queue_first(Thread& thread) { waiting_.push_front(&thread); }
  // Keeps it for the next thread that queues, which comes before all others. `waker`: wakes that thread, and does not
  // count.
  void keep_for_woken(Thread& waker) { keeper_ = &waker, for_keeper_ = false; }
  bool is_kept_by(const Thread& waker) const { return keeper_ == &waker && !for_keeper_; }
  // Keeps it for this thread, which comes before all others when it queues.
  void keep_for(Thread& thread) { keeper_ = &thread, for_keeper_ = true; }
  // The thread that it is kept for, if that is known.
  Thread* kept_for() const { return for_keeper_ ? keeper_ : nullptr; }
  // It is kept no longer, even if no thread has queued. Returns whether it was.
  bool stop_keeping() { return std::exchange(keeper_, nullptr) != nullptr; }
  // Takes the first thread off the queue; null if there is none, or if it is kept.
  Thread* next();
  // Takes this thread off the queue, if it waits there.
  void leave_queue(const Thread& thread);
  // Gives it to a thread that has waited.
  void take(Thread& thread, Clock::time_point now) { holder_ = &thread, since_ = now; }
  // Call this when the thread has ended.
  void forget(const Thread& thread);
  // Call this when the other baton's unit becomes part of this one. Its queue is appended to this one.
  void join(Baton& other);

 private:
  Thread* holder_ = nullptr;
  Thread* keeper_ = nullptr;  // null: it is not kept
  bool for_keeper_ = false;   // or else for another thread than that
  std::deque<Thread*> waiting_;
  Clock::time_point since_{};
};

}  // namespace redrive
