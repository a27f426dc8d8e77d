// Files in which the kernel shows what programs must not see: that a recorder traces them and filters their calls, on
// which processors it lets them run, and how many processors there are if programs are to find another number.
//
// This class says what a thread that has opened such a file would find now without a recorder. The recorder shows it
// that instead.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "supervisor/record/placement/seen_processors.h"
#include "supervisor/record/tracees/confinement.h"
#include "supervisor/record/tracees/proc_file.h"

namespace redrive {

class AdaptedFiles {
 public:
  // `processors` must outlive it.
  explicit AdaptedFiles(const SeenProcessors& processors) : processors_(processors) {}

  // What programs are to find about a recorded thread.
  struct Subject {
    const Confinement& confinement;
    const cpu_set_t& processors;
    bool is_stopped = false;  // by a signal, not by the recorder
  };
  // Finds the recorded thread that a file is about; nullopt if there is none.
  using Find = std::function<std::optional<Subject>(const ProcFile& status)>;
  // What thread `tid` is to find in the file that it has open; nullopt if it is to find the file itself.
  std::optional<std::string> contents(pid_t tid, uint64_t descriptor, const Find& find) const;

 private:
  std::optional<std::string> of_processors(const std::string& file, const std::string& path) const;

  const SeenProcessors& processors_;
};

}  // namespace redrive
