// redrive check: verifies every byte of a trace.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "logstore/trace.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/commands.h"

namespace redrive {

namespace {

const char* how_it_ended(const Trace& trace) {
  if (trace.finished()) return "";
  return trace.recording() ? "; the recording goes on; what is there is good"
                           : "; the recorder was killed before it could finish; what is there is good";
}

std::string summary(const Trace& trace) {
  uint64_t intervals = 0;
  uint64_t events = 0;
  for (const auto& unit : trace.units()) {
    intervals += trace.intervals(unit.unit).size();
    events += trace.event_count(unit.unit);
  }
  return fmt::format("{}: clean: {}, {}, {}, {}{}", printable(trace.directory()), counted(trace.units().size(), "unit"),
                     counted(intervals, "interval"), counted(events, "event"), format_size(trace.size_on_disk()),
                     how_it_ended(trace));
}

int print_json_report(const std::string& directory, const std::vector<std::string>& damage, bool finished) {
  print_json({{"directory", directory}, {"clean", damage.empty()}, {"finished", finished}, {"damage", damage}});
  return static_cast<int>(damage.empty() ? Status::ok : Status::damaged);
}

}  // namespace

Result<int> check_command(const CheckOptions& options) {
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  const auto opened = Trace::open(directory);
  if (!opened) {
    if (options.json && opened.error().status == Status::damaged) {
      return print_json_report(directory, {opened.error().message}, false);
    }
    return opened.error();
  }
  const Trace& trace = *opened.value();
  const auto damage = trace.check();
  if (options.json) return print_json_report(directory, damage, trace.finished());
  for (const auto& line : damage) fmt::print("{}\n", printable(line));
  if (damage.empty()) {
    fmt::print("{}\n", summary(trace));
    return 0;
  }
  return Error{fmt::format("{}: {} damaged", directory, counted(damage.size(), "place")), Status::damaged};
}

}  // namespace redrive
