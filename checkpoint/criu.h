// CRIU, the program (criu(8)): writes processes that stand still into images, and ends them; and makes processes again.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/stub_namespaces.h"

namespace redrive {

class Criu {
 public:
  // That in PATH. An Error, which says what to do, if there is none, if it is too old, or if it does not work on this
  // kernel or for us. `what` is for what it is needed, in the plural.
  static Result<Criu> find(const std::string& what);

  // Dumps a process and its descendants, all of which are in a control group that can be frozen, by its path. The
  // process is the first of a PID namespace.
  Result<void> dump(pid_t first, const std::string& directory, const std::string& group) const;
  // Restores the processes of a directory, which has this path in the namespaces, into them, and leaves them stopped.
  // `seen` is the directory's path for us.
  Result<void> restore(const StubNamespaces& namespaces, const std::string& directory, const std::string& seen) const;

 private:
  Criu(std::string program, std::string version) : program_(std::move(program)), version_(std::move(version)) {}
  Error failure(const std::string& doing, const std::string& log, const std::string& output, int status) const;

  std::string program_, version_;
};

// In a child that has been forked: becomes the criu in PATH, without what redrive has changed for itself.
[[noreturn]] void become_criu(std::vector<std::string> words);

// To be in CRIU's environment. CRIU sets breakpoints by debug registers, and waits for ever where these do not work, as
// in some virtual machines; so it is to follow system calls in their place (FI_NO_BREAKPOINTS, its fault-injection.h).
inline constexpr char kCriuWithoutBreakpoints[] = "CRIU_FAULT=130";

// What is wrong, of the lines that CRIU has written: the first error that matters, without the place in CRIU's source.
// Empty if there is none.
std::string first_criu_error(const std::string& log);
// Whether CRIU of this version can be used: 4.1 or newer.
bool is_criu_new_enough(const std::string& version);

}  // namespace redrive
