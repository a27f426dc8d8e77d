// redrive live: the units of a distributed breakpoint become processes that run on by themselves.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/cli/command.h"
#include "supervisor/cli/unit_spec.h"

namespace redrive {

struct LiveOptions {
  std::string trace;
  std::optional<UnitSpec> interval;  // where it begins
  std::vector<PlaceSpec> breaks;     // or these events
  std::optional<DeliverySpec> delivery;
  bool trace_files = false;  // files are read from the trace where it has them
  bool stopped = false;
  bool in_process = true;  // as in ReplayOptions
  int jobs = 1;
};

std::unique_ptr<Command> make_live_command();

}  // namespace redrive
