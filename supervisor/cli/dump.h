// redrive dump: prints the recorded events.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "supervisor/cli/command.h"
#include "supervisor/cli/unit_spec.h"

namespace redrive {

struct DumpOptions {
  std::string trace;
  std::optional<UnitSpec> what;  // absent: every unit
  // The one positional given, which names a trace if there is such a trace and a unit of the latest trace otherwise.
  std::optional<std::string> trace_or_unit;
  bool json = false;
};

std::unique_ptr<Command> make_dump_command();

}  // namespace redrive
