// redrive follow: shows what a session records while it does.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "supervisor/cli/command.h"

namespace redrive {

struct FollowOptions {
  std::string session;
  double interval_s = 1;
  std::optional<uint64_t> count;  // of reports
  bool json = false;
};

std::unique_ptr<Command> make_follow_command();

}  // namespace redrive
