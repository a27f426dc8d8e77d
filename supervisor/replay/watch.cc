#include "supervisor/replay/watch.h"

#include <sched.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace redrive {
namespace {

constexpr auto kPatience = std::chrono::seconds(1);

void release_task(const std::filesystem::path& task, const cpu_set_t& processors) {
  sched_setaffinity(std::stoi(task.filename()), sizeof processors, &processors);
}

// Our threads, and those of their children: the stubs.
void release_all(const cpu_set_t& processors) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(task.path() / "children");
    release_task(task.path(), processors);
    for (std::string pid; children >> pid;) {
      std::error_code gone;
      for (std::filesystem::directory_iterator thread("/proc/" + pid + "/task", gone), end; thread != end;
           thread.increment(gone)) {
        release_task(thread->path(), processors);
      }
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
