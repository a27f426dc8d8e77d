// CRIU, the program (criu(8)): writes processes that stand still into images, and ends them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace redrive {

class Criu {
 public:
  // That in PATH. An Error, which says what to do, if there is none, or if it does not work on this kernel or for us.
  // `what`, in the plural, is what it is needed for.
  static Result<Criu> find(const std::string& what);

  // Dumps a process and its descendants, all of which are in a control group that is frozen. The first is the first of
  // a PID namespace.
  Result<void> dump(pid_t first, const std::string& directory, const std::string& group) const;

 private:
  explicit Criu(std::string version) : version_(std::move(version)) {}

  std::string version_;
};

// In a child that has been forked: becomes a program in PATH, without what redrive has changed for itself.
[[noreturn]] void become(std::vector<std::string> words);

// What is wrong, of the lines that CRIU has written: the first error that matters, without the place in CRIU's source.
// Empty if there is none.
std::string first_criu_error(const std::string& log);

}  // namespace redrive
