// Starts the program that the user wants to record: under the filter that has its calls stop (seccomp(2)), with
// everything restored that redrive has changed in its own process, and not before its tracer is there.
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class Launcher {
 public:
  // The filter under which the program runs. `arena` is that of the in-process tier, null without it.
  using Filter = std::vector<sock_filter>;
  static Result<Filter> filter(const GateArena* arena);
  // Forks a process that will execute `path`, an absolute path, with these arguments and this environment.
  static Result<Launcher> fork(const std::string& path, const std::vector<std::string>& arguments,
                               const Filter& filter);

  // The process. It waits until go() is called; if that never happens, it ends when this object does.
  pid_t pid() const { return pid_; }
  // Lets it execute the program. If it cannot, it says why on standard error and exits with 127 or 126 (exit_status.h).
  Result<void> go();

 private:
  Launcher(pid_t pid, Fd pipe) : pid_(pid), pipe_(std::move(pipe)) {}

  pid_t pid_;
  Fd pipe_;
};

}  // namespace redrive
