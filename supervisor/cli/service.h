// redrive service: has systemd start an existing service under redrive, or no longer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "supervisor/cli/command.h"

namespace redrive {

struct ServiceOptions {
  std::string root;  // where the system's files are; empty: this system
  bool enable = false;
  std::string unit;
  std::vector<std::string> record;  // options of redrive record
};

std::unique_ptr<Command> make_service_command();

}  // namespace redrive
