// redrive snapshot: makes a trace of the window of a recording, which goes on (record --keep).
#pragma once

#include <memory>
#include <string>

#include "supervisor/cli/command.h"

namespace redrive {

struct SnapshotOptions {
  std::string of;         // a session or a trace
  std::string directory;  // of the trace to make
  bool no_repair = false;
};

std::unique_ptr<Command> make_snapshot_command();

}  // namespace redrive
