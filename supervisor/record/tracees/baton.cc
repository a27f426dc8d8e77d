#include "supervisor/record/tracees/baton.h"

#include <utility>

namespace redrive {

Thread* Baton::next() {
  if (waiting_.empty()) return nullptr;
  Thread* const first = waiting_.front();
  waiting_.pop_front();
  return first;
}

void Baton::leave_queue(const Thread& thread) { std::erase(waiting_, &thread); }

void Baton::forget(const Thread& thread) {
  leave_queue(thread);
  if (holder_ == &thread) holder_ = nullptr;
}

void Baton::join(Baton& other) {
  waiting_.insert(waiting_.end(), other.waiting_.begin(), other.waiting_.end());
  other.waiting_.clear();
}

}  // namespace redrive
