// redrive checkpoint: has all units of a session take a checkpoint now.
#pragma once

#include <memory>
#include <string>

#include "supervisor/cli/command.h"

namespace redrive {

struct CheckpointOptions {
  std::string session;
};

std::unique_ptr<Command> make_checkpoint_command();

}  // namespace redrive
