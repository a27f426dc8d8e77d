// redrive ps: the sessions that there are.
#pragma once

#include <memory>
#include <string>

#include "supervisor/cli/command.h"

namespace redrive {

struct PsOptions {
  bool json = false;
};

std::unique_ptr<Command> make_ps_command();

}  // namespace redrive
