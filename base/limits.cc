#include "base/limits.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

namespace redrive {
namespace {

constexpr rlim_t kMiB = 1 << 20;
constexpr size_t kThreadStack = 1 << 20;

struct Limit {
  __rlimit_resource resource;
  const char* name;
  const char* option;  // of ulimit
  rlim_t least;        // that a recording of a small program needs
  rlim_t unit;
  const char* unit_name;
  bool of_programs = false;  // raised only for what holds and runs the memory of programs
  rlimit inherited{RLIM_INFINITY, RLIM_INFINITY};
};
// The stack's limit is not among them: the kernel lays out a program's memory by it, so it is not raised.
constexpr rlim_t kKiB = 1 << 10, kLeastStack = 256 * kKiB;
std::array<Limit, 8> limits{{{RLIMIT_NOFILE, "open files", "n", 64, 1, ""},
                             {RLIMIT_FSIZE, "the size of files", "f", kMiB, kMiB, " MiB"},
                             {RLIMIT_AS, "address space", "v", 256 * kMiB, kMiB, " MiB", true},
                             {RLIMIT_DATA, "data", "d", 128 * kMiB, kMiB, " MiB", true},
                             {RLIMIT_CPU, "CPU time", "t", 1, 1, " s", true},
                             {RLIMIT_NPROC, "processes", "u", 0, 1, ""},
                             {RLIMIT_MEMLOCK, "locked memory", "l", 0, kMiB, " MiB"},
                             {RLIMIT_SIGPENDING, "pending signals", "i", 0, 1, ""}}};

// The highest that is possible.
rlim_t most(__rlimit_resource resource) {
  rlim_t most = RLIM_INFINITY;
  if (resource == RLIMIT_NOFILE) std::ifstream("/proc/sys/fs/nr_open") >> most;
  return most;
}

void lift(const Limit& limit) {
  const rlim_t hard = limit.inherited.rlim_max, highest = std::max(most(limit.resource), hard);
  const rlimit lifted{highest, highest}, soft{hard, hard};
  // Only a privileged process may raise the hard limit.
  if (setrlimit(limit.resource, &lifted) != 0) setrlimit(limit.resource, &soft);
}

// Does nothing, but a write that makes a file too large fails (EFBIG) instead of ending redrive. Programs that are
// executed do not inherit it.
void ignore_too_large(int) {}

}  // namespace

void lift_limits() {
  for (Limit& limit : limits) {
    if (getrlimit(limit.resource, &limit.inherited) == 0 && !limit.of_programs) lift(limit);
  }
  struct sigaction too_large {};
  if (sigaction(SIGXFSZ, nullptr, &too_large) == 0 && too_large.sa_handler == SIG_DFL) {
    too_large.sa_handler = ignore_too_large;
    sigaction(SIGXFSZ, &too_large, nullptr);
  }
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  if (pthread_attr_setstacksize(&attributes, kThreadStack) == 0) pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

void lift_limits_of_programs() {
  for (const Limit& limit : limits) {
    if (limit.of_programs) lift(limit);
  }
}

Result<void> check_limits() {
  for (const Limit& limit : limits) {
    rlimit now{};
    if (getrlimit(limit.resource, &now) != 0 || now.rlim_cur >= limit.least) continue;
    return Error{fmt::format(
        "the limit of {}, {}{}, is too low: redrive itself needs {}{}, and may not raise it (ulimit -H{})", limit.name,
        now.rlim_cur / limit.unit, limit.unit_name, limit.least / limit.unit, limit.unit_name, limit.option)};
  }
  if (rlimit stack{}; getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < kLeastStack) {
    return Error{fmt::format("the limit of the stack, {} KiB, is too low: redrive itself needs {} KiB (ulimit -s)",
                             stack.rlim_cur / kKiB, kLeastStack / kKiB)};
  }
  return {};
}

void give_back_limits() {
  for (const Limit& limit : limits) setrlimit(limit.resource, &limit.inherited);
}

}  // namespace redrive
