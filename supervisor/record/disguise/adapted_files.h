// Files in which the kernel shows what programs must not see: that a recorder traces them and filters their calls, on
// which processors it lets them run, and how many processors there are if programs are to find another number.
//
// This class says what a thread that opens such a file by name would find now without a recorder. The recorder shows it
// that instead.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "supervisor/record/placement/seen_processors.h"
#include "supervisor/record/tracees/confinement.h"

namespace redrive {

class AdaptedFiles {
 public:
  // `processors` must outlive it.
  explicit AdaptedFiles(const SeenProcessors& processors) : processors_(processors) {}

  struct Reader {
    pid_t tid = -1;
    pid_t pid = -1;
  };
  // What programs are to find about a recorded thread.
  struct Subject {
    const Confinement& confinement;
    const cpu_set_t& processors;
  };
  // Finds the recorded thread with this number; nullopt if there is none.
  using Find = std::function<std::optional<Subject>(pid_t tid)>;
  // What the reader is to find in the file with this path; nullopt if it is to find the file itself.
  std::optional<std::string> contents(const Reader& reader, const std::string& path, const Find& find) const;

 private:
  std::optional<std::string> of_processors(const Reader& reader, const std::string& path) const;

  const SeenProcessors& processors_;
};

}  // namespace redrive
