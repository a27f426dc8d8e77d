#include "supervisor/record/criu_cost.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "base/units.h"
#include "checkpoint/address_space.h"
#include "logstore/home.h"
#include "supervisor/record/checkpoints/criu_service.h"

namespace redrive {
namespace {

constexpr size_t kLarge = 64 << 20;
constexpr int kTimes = 3;

// A child with so much memory that sleeps as copies do.
Result<pid_t> start_sleeper(size_t bytes) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  const Fd from(ends[0]);
  Fd to(ends[1]);
  const pid_t child = fork();
  if (child < 0) return errno_error("cannot fork");
  if (child == 0) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(1);
    std::memset(memory, 1, bytes);
    setsid();
    close_range(0, ~0u, 0);
    for (;;) pause();
  }
  to = Fd();
  char byte = 0;
  while (read(from.get(), &byte, 1) < 0 && errno == EINTR) {
  }
  return child;
}

struct Measured {
  double cpu_s = 0;  // for each dump, the process's own time included
  double megabytes = 0;
};

Result<Measured> measure(size_t bytes) {
  ASSIGN_OR_RETURN(CriuService service, CriuService::start());
  ASSIGN_OR_RETURN(const pid_t sleeper, start_sleeper(bytes));
  Measured measured;
  measured.megabytes = static_cast<double>(private_bytes(sleeper)) / 1e6;
  Result<void> dumped;
  for (int i = 0; i < kTimes && dumped; ++i) {
    if (const auto directory = service.dump(sleeper); !directory) dumped = directory.error();
  }
  kill(sleeper, SIGKILL);
  rusage used{};
  while (wait4(sleeper, nullptr, 0, &used) < 0 && errno == EINTR) {
  }
  if (!dumped) return dumped.error();
  const double system_s = static_cast<double>(used.ru_stime.tv_sec) + static_cast<double>(used.ru_stime.tv_usec) / 1e6;
  measured.cpu_s = (seconds(service.end()) + system_s) / kTimes;
  return measured;
}

std::string kept_in() {
  const std::string home = home_for(kCacheHome);
  return home.empty() ? home : home + "/criu-cost";
}

std::string kernel() {
  utsname name{};
  uname(&name);
  return name.release;
}

}  // namespace

Result<CriuCost> measure_criu_cost() {
  ASSIGN_OR_RETURN(const Measured small, measure(kPageSize));
  ASSIGN_OR_RETURN(const Measured large, measure(kLarge));
  CriuCost cost;
  cost.megabyte_s = std::max(0.0, (large.cpu_s - small.cpu_s) / (large.megabytes - small.megabytes));
  cost.dump_s = std::max(0.0, small.cpu_s - cost.megabyte_s * small.megabytes);
  return cost;
}

void keep_criu_cost(const CriuCost& cost) {
  const std::string path = kept_in();
  if (path.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  std::ofstream(path) << fmt::format("{} {} {}\n", kernel(), cost.dump_s, cost.megabyte_s);
}

std::optional<CriuCost> kept_criu_cost() {
  if (geteuid() != 0) return {};
  std::ifstream file(kept_in());
  std::string measured_with;
  CriuCost cost;
  if (!(file >> measured_with >> cost.dump_s >> cost.megabyte_s) || measured_with != kernel()) return {};
  return cost;
}

}  // namespace redrive
