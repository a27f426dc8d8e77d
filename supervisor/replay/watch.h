// Lets everybody that a replay executes run on all processors where nobody gets on. The kernel can starve a thread that
// has to stay on one for as long as other sessions keep that busy (sched(7), autogroup).
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace redrive {

class Watch {
 public:
  // `progress`: a number that is another one whenever somebody got on.
  Watch(const std::vector<int>& processors, std::function<uint64_t()> progress);

 private:
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::jthread thread_;
};

}  // namespace redrive
