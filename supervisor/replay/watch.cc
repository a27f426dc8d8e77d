#include "supervisor/replay/watch.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <sstream>
#include <utility>

#include "base/brief_file.h"
#include "base/procfs.h"

namespace redrive {
namespace {

constexpr auto kPatience = std::chrono::seconds(1);

// Our threads, and those of their children: the stubs.
void release_all(const cpu_set_t& processors) {
  for (const pid_t own : proc_threads(getpid())) {
    sched_setaffinity(own, sizeof processors, &processors);
    std::istringstream children(read_briefly(proc_path(getpid(), fmt::format("task/{}/children", own))));
    for (pid_t child; children >> child;) {
      for (const pid_t tid : proc_threads(child)) sched_setaffinity(tid, sizeof processors, &processors);
    }
  }
}

}  // namespace

Watch::Watch(const std::vector<int>& processors, std::function<uint64_t()> progress)
    : thread_([this, processors, progress = std::move(progress)] {
        cpu_set_t all;
        CPU_ZERO(&all);
        for (const int processor : processors) CPU_SET(static_cast<size_t>(processor), &all);
        uint64_t before = progress();
        const Lock lock(mutex_);
        while (!is_over_) {
          if (ended_.wait_for(mutex_, kPatience)) continue;
          const uint64_t now = progress();
          if (now == std::exchange(before, now)) release_all(all);
        }
      }) {}

Watch::~Watch() {
  {
    const Lock lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

}  // namespace redrive
