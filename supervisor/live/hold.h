// A control group of its own, in which processes stand still (cgroups(7), the freezer of version 2): nothing of them
// runs, and no signal and no tracer makes that so. CRIU, which cannot dump what is traced, takes over from it.
//
// A stop by SIGSTOP would be part of a checkpoint: a restored process would stand until SIGCONT, its parent would get
// SIGCHLD twice, and handlers of SIGCONT would run.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace redrive {

class Hold {
 public:
  static Result<std::unique_ptr<Hold>> make();
  ~Hold();  // ends all that are in it
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  // Its directory. A process joins by writing 0 into the file cgroup.procs there.
  const std::string& path() const { return path_; }
  // From now on nothing in it comes out of the kernel.
  Result<void> freeze();
  // Until all have come to a stop. What is traced and stopped counts as such.
  Result<void> await() const;

 private:
  explicit Hold(std::string path) : path_(std::move(path)) {}
  std::string events() const;

  const std::string path_;
};

}  // namespace redrive
