#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <vector>

namespace redrive {

int processor_count() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? std::max(CPU_COUNT(&allowed), 1) : 1;
}

void for_each_in_parallel(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  const auto work_on = [&] {
    for (size_t i; (i = next++) < count;) work(i);
  };
  std::vector<std::future<void>> others;
  const size_t threads = std::min(count, static_cast<size_t>(processor_count()));
  while (others.size() + 1 < threads) {
    others.push_back(std::async(std::launch::async | std::launch::deferred, work_on));
  }
  work_on();
  for (auto& other : others) other.get();
}

}  // namespace redrive
