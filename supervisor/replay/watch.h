// Lets everything that a replay executes run on all processors when nothing makes progress. The kernel can starve a
// thread that has to stay on one processor for as long as other sessions keep that busy (sched(7), autogroup).
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace redrive {

class Watch {
 public:
  // `progress`: a number that changes whenever an interval advances.
  Watch(const std::vector<int>& processors, std::function<uint64_t()> progress);
  ~Watch();

 private:
  Mutex mutex_;
  Condition ended_;
  bool is_over_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace redrive
