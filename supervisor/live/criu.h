// CRIU, the program (criu(8)): writes processes that stand still into images, and ends them.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"
#include "supervisor/live/hold.h"

namespace redrive {

class Criu {
 public:
  // That in PATH. An Error, which says what to do, if there is none, or if it does not work on this kernel or for us.
  static Result<Criu> find();

  // Dumps a process and its descendants, all of which are in `hold`. The first is the first of a PID namespace.
  Result<void> dump(pid_t first, const std::string& directory, const Hold& hold) const;

 private:
  explicit Criu(std::string version) : version_(std::move(version)) {}

  std::string version_;
};

// What is wrong, of the lines that CRIU has written: the first error that matters, without the place in CRIU's source.
// Empty if there is none.
std::string first_criu_error(const std::string& log);

}  // namespace redrive
