#include "supervisor/record/tracees/baton.h"

#include <utility>

namespace redrive {

void Baton::queue(Thread& thread) {
  if (!waker_ || waker_ == &thread) {
    waiting_.push_back(&thread);
  } else {
    waiting_.push_front(&thread);
    waker_ = nullptr;
  }
}

Thread* Baton::next() {
  if (waker_ || waiting_.empty()) return nullptr;
  Thread* const first = waiting_.front();
  waiting_.pop_front();
  return first;
}

void Baton::leave_queue(const Thread& thread) { std::erase(waiting_, &thread); }

void Baton::forget(const Thread& thread) {
  leave_queue(thread);
  if (holder_ == &thread) holder_ = nullptr;
  if (waker_ == &thread) waker_ = nullptr;
}

void Baton::join(Baton& other) {
  waiting_.insert(waiting_.end(), other.waiting_.begin(), other.waiting_.end());
  other.waiting_.clear();
}

}  // namespace redrive
