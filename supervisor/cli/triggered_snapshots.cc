#include "supervisor/cli/triggered_snapshots.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>

#include "base/notice.h"
#include "base/text.h"
#include "checkpoint/stub.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/cli/time_of_day.h"

namespace redrive {
namespace {

// When it was, since the epoch.
int64_t unix_ns(uint64_t monotonic_ns) {
  timespec wall{}, monotonic{};
  clock_gettime(CLOCK_REALTIME, &wall);
  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  const auto in_ns = [](const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
  return in_ns(wall) - in_ns(monotonic) + static_cast<int64_t>(monotonic_ns);
}

// Returns the exit status of a redrive with these words; -1 if it cannot be known.
int run_redrive(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = -1;
  const Untrapped untrapped;  // the other one inherits it
  if (posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ) != 0) return -1;
  int status = 0;
  // The recorder waits for children of its own thread only, so it does not meet this one.
  return wait_for(process, status) && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TriggeredSnapshots::TriggeredSnapshots(LiveControl& live, std::string directory, uint64_t most)
    : live_(live), directory_(std::move(directory)), most_(most), thread_([this] { run(); }) {}

void TriggeredSnapshots::take(const Triggers::Happened& happened) {
  const Lock lock(mutex_);
  if (!happened_) happened_ = happened;
  changed_.notify_all();
}

void TriggeredSnapshots::end() {
  {
    const Lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TriggeredSnapshots::run() {
  Lock lock(mutex_);
  for (;;) {
    while (!happened_ && !ending_) changed_.wait(mutex_);
    if (!happened_) return;
    const Triggers::Happened happened = *happened_;
    lock.unlock();
    make(happened);
    lock.lock();
    happened_.reset();
  }
}

void TriggeredSnapshots::make(const Triggers::Happened& happened) {
  const std::string what = fmt::format("at {}, {}", clock_text(unix_ns(happened.at_ns), false), happened.what);
  if (made_ >= most_) {
    if (made_++ == most_) notice("{}; from now on, no snapshots are taken (see --snapshots)", what);
    return;
  }
  if (const auto cut = live_.cut_window(); !cut) {
    if (live_.has_ended_well()) {
      notice("{}; the program has ended: see the end of {}", what, directory_);
    } else {
      notice("{}: there is no snapshot: {}", what, cut.error().message);
    }
    return;
  }
  std::string directory;
  do {
    directory = fmt::format("{}.snapshot-{}", directory_, ++number_);
  } while (std::filesystem::exists(std::filesystem::symlink_status(directory)));
  ++made_;
  const int status = run_redrive({"redrive", "snapshot", directory_, "-o", directory});
  if (status == 0) {
    notice("{}: snapshot in {}", what, directory);
  } else {
    notice("{}: there is no snapshot in {}", what, directory);
  }
}

}  // namespace redrive
