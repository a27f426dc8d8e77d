// All commands of redrive.
#pragma once

#include <memory>
#include <vector>

#include "supervisor/cli/command.h"

namespace redrive {

// In the order of --help.
std::vector<std::unique_ptr<Command>> make_commands();

}  // namespace redrive
