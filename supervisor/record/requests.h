// What other threads ask of the record loop. They wait until the loop has carried it out between two stops, so it may
// touch everything that the loop owns. The loop looks at one flag; it is woken only when there is a request.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <deque>
#include <functional>

#include "base/mutex.h"

namespace redrive {

class Requests {
 public:
  // In the loop's thread.
  Requests();

  // For other threads: has the loop carry this out, and waits for that. False if the loop has ended; then it was not
  // carried out.
  bool ask(const std::function<void()>& request) EXCLUDES(mutex_);

  bool are_closed() const EXCLUDES(mutex_);

  // For the loop: whether something was asked, and carries it out.
  bool are_any() const { return any_.load(std::memory_order_relaxed); }
  void carry_out() EXCLUDES(mutex_);
  // The loop has ended.
  void close() EXCLUDES(mutex_);

 private:
  struct Request {
    const std::function<void()>* what;
    enum { waiting, carried_out, refused } state = waiting;
  };

  const pid_t loop_;
  std::atomic<bool> any_{false};
  mutable Mutex mutex_;
  Condition answered_;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::deque<Request*> requests_ GUARDED_BY(mutex_);
};

}  // namespace redrive
