// redrive rm: removes traces, and nothing else.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "supervisor/cli/command.h"

namespace redrive {

struct RemoveOptions {
  std::vector<std::string> traces;
};

std::unique_ptr<Command> make_remove_command();

}  // namespace redrive
