// redrive status: what is known of one session.
#pragma once

#include <memory>
#include <string>

#include "supervisor/cli/command.h"

namespace redrive {

struct SessionStatusOptions {
  std::string session;
  bool json = false;
};

std::unique_ptr<Command> make_status_command();

}  // namespace redrive
