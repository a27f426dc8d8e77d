// Files in which the kernel says what programs are not to see: that a recorder traces them and filters their calls,
// where it lets them run, and how many processors there are if they are to see another number.
//
// It says what a thread that opens such a file by its name is to find: what it would find without a recorder, as of
// now. How the thread comes to find that is up to the recorder.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "supervisor/record/confinement.h"
#include "supervisor/record/seen_processors.h"

namespace redrive {

class AdaptedFiles {
 public:
  // `processors` must outlive it.
  explicit AdaptedFiles(const SeenProcessors& processors) : processors_(processors) {}

  struct Reader {
    pid_t tid = -1;
    pid_t pid = -1;
  };
  // What a recorded thread is to find of itself, and others of it.
  struct Subject {
    const Confinement& confinement;
    const cpu_set_t& processors;
  };
  // The recorded thread with this number; nothing if there is none.
  using Find = std::function<std::optional<Subject>(pid_t tid)>;
  // What the reader is to find in the file with this path; nothing if that is what the kernel says.
  std::optional<std::string> contents(const Reader& reader, const std::string& path, const Find& find) const;

 private:
  std::optional<std::string> of_processors(const Reader& reader, const std::string& path) const;

  const SeenProcessors& processors_;
};

}  // namespace redrive
