// redrive plan: what a replay would have to execute, and how long it would take.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/cli/command.h"
#include "supervisor/cli/unit_spec.h"

namespace redrive {

struct PlanOptions {
  std::string trace;
  UnitSpec what;  // a single interval; not used with `breaks`
  int jobs = 1;
  std::optional<uint64_t> until;  // as in ReplayOptions
  std::vector<PlaceSpec> breaks;  // plan a distributed breakpoint instead
  bool json = false;
};

std::unique_ptr<Command> make_plan_command();

}  // namespace redrive
