// A file of procfs about one thread or process, such as proc_pid_mem(5), that a recorded thread has open: wherever
// procfs is mounted, and however the thread came by the descriptor. It does not find out which thread the file is about
// (Tracees::shown_in()).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>

namespace redrive {

struct ProcFile {
  pid_t process = -1;  // by their numbers there
  pid_t thread = -1;   // the same as the process's if it is a file about that
  bool ours = false;   // these are numbers of the recorder's PID namespace

  // The file that the thread's descriptor has open, if it is one of this name.
  static std::optional<ProcFile> behind(pid_t tid, uint64_t descriptor, std::string_view name);
};

}  // namespace redrive
