// redrive stats: counts messages, bytes and checkpoints, in total and per unit and channel.
#pragma once

#include <memory>
#include <string>

#include "supervisor/cli/command.h"

namespace redrive {

struct StatsOptions {
  std::string trace;
  bool json = false;
};

std::unique_ptr<Command> make_stats_command();

}  // namespace redrive
