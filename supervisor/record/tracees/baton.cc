#include "supervisor/record/tracees/baton.h"

#include <utility>

namespace redrive {

void Baton::queue(Thread& thread) {
  if (keeper_ && (keeper_ == &thread) == for_keeper_) {
    waiting_.push_front(&thread);
    keeper_ = nullptr;
  } else {
    waiting_.push_back(&thread);
  }
}

Thread* Baton::next() {
  if (keeper_ || waiting_.empty()) return nullptr;
  Thread* const first = waiting_.front();
  waiting_.pop_front();
  return first;
}

void Baton::leave_queue(const Thread& thread) { std::erase(waiting_, &thread); }

void Baton::forget(const Thread& thread) {
  leave_queue(thread);
  if (holder_ == &thread) holder_ = nullptr;
  if (keeper_ == &thread) keeper_ = nullptr;
}

void Baton::join(Baton& other) {
  waiting_.insert(waiting_.end(), other.waiting_.begin(), other.waiting_.end());
  other.waiting_.clear();
}

}  // namespace redrive
