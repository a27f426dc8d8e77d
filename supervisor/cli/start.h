// redrive start: starts a session, which is a recording in the background.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "supervisor/cli/command.h"

namespace redrive {

struct StartOptions {
  std::string name;
  std::string output;               // file for what the session writes; empty: one beside the traces
  std::vector<std::string> record;  // arguments of redrive record
};

std::unique_ptr<Command> make_start_command();

}  // namespace redrive
