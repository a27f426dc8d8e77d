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
  std::optional<UnitSpec> what;  // nullopt: every unit
  // The only word that was given. It names a trace if a trace with that name exists, and otherwise a unit of the latest
  // trace.
  std::optional<std::string> trace_or_unit;
  bool times = false;
  std::optional<std::string> since, until;  // moments (time_of_day.h)
  bool utc = false;
  bool json = false;
};

std::unique_ptr<Command> make_dump_command();

}  // namespace redrive
