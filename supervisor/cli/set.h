// redrive set: changes a session while it records.
#pragma once

#include <memory>
#include <string>

#include "supervisor/cli/command.h"

namespace redrive {

struct SetOptions {
  std::string session;
  double bound_s = 0;  // 0: it stays
  double keep_s = 0;   // the same
};

std::unique_ptr<Command> make_set_command();

}  // namespace redrive
