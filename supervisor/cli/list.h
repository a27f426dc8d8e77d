// redrive ls: the traces below trace_home(), newest first, or the units and intervals of one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "supervisor/cli/command.h"

namespace redrive {

struct ListOptions {
  std::optional<std::string> trace;  // or a pattern of names as in glob(7), if no trace has that name
  bool failed = false;               // only those whose programs ended with a status other than 0
  std::optional<std::chrono::system_clock::time_point> since;  // only those that began then or later
  std::optional<uint64_t> most;                                // at most this many
  std::optional<std::string> at;  // the intervals of a trace that ran at this moment (time_of_day.h)
  bool times = false;             // show when intervals began and ended
  bool checkpoints = false;       // the images of a trace
  bool utc = false;
  bool json = false;
  bool filters() const { return failed || since || most; }
};

std::unique_ptr<Command> make_list_command();

}  // namespace redrive
