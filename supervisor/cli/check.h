// redrive check: verifies every byte of a trace, or whether this host can record.
#pragma once

#include <memory>
#include <string>

#include "supervisor/cli/command.h"

namespace redrive {

struct CheckOptions {
  std::string trace;
  bool host = false;  // instead of a trace
  bool json = false;
};
// Running it returns Status::damaged if anything is wrong with the trace.
std::unique_ptr<Command> make_check_command();

}  // namespace redrive
