#include "supervisor/live/hold.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/fd.h"
#include "supervisor/live/write_setting.h"

namespace redrive {
namespace {

constexpr int kPause_ms = 5;

// Where control groups of version 2 are mounted; empty if nowhere.
std::string mounted_at() {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(" - cgroup2 ") == std::string::npos) continue;
    std::istringstream words(line);
    std::string word;
    constexpr int kMountPoint = 5;
    for (int i = 0; i < kMountPoint; ++i) words >> word;
    return word;
  }
  return {};
}

// Our own group, as a path below that.
std::string own_group() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return "/";
}

void pause_for(const std::string& events) {
  const Fd file(::open(events.c_str(), O_RDONLY | O_CLOEXEC));
  pollfd change{file.get(), POLLPRI, 0};
  poll(&change, 1, kPause_ms);
}

}  // namespace

Result<std::unique_ptr<Hold>> Hold::make() {
  const std::string root = mounted_at();
  if (root.empty()) {
    return Error{"processes cannot stand still for criu: control groups of version 2 are not mounted (cgroups(7))"};
  }
  const std::string group = own_group();
  const std::string path = fmt::format("{}{}{}redrive-{}", root, group, group == "/" ? "" : "/", getpid());
  constexpr mode_t kMode = 0755;
  if (mkdir(path.c_str(), kMode) != 0) {
    return errno_error(fmt::format("processes cannot stand still for criu: cannot make the control group {}", path));
  }
  return std::unique_ptr<Hold>(new Hold(path));
}

std::string Hold::events() const {
  std::ifstream file(path_ + "/cgroup.events");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Result<void> Hold::freeze() {
  if (!write_setting(path_ + "/cgroup.freeze", "1")) {
    return errno_error("cannot let the processes stand still for criu (cgroup.freeze)");
  }
  return {};
}

Result<void> Hold::await() const {
  for (;;) {
    const std::string now = events();
    if (now.find("frozen 1") != std::string::npos) return {};
    if (now.find("populated 1") == std::string::npos) return Error{"the processes have ended before they were dumped"};
    pause_for(path_ + "/cgroup.events");
  }
}

Hold::~Hold() {
  write_setting(path_ + "/cgroup.kill", "1");
  while (events().find("populated 1") != std::string::npos) pause_for(path_ + "/cgroup.events");
  rmdir(path_.c_str());
}

}  // namespace redrive
