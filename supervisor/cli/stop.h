// redrive stop: ends a session's program, and waits until its trace is complete.
#pragma once

#include <memory>
#include <string>

#include "supervisor/cli/command.h"

namespace redrive {

struct StopOptions {
  std::string session;
  double timeout_s = 10;
};

std::unique_ptr<Command> make_stop_command();

}  // namespace redrive
