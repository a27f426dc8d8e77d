#include "supervisor/plan/restore_cost.h"

#include <fmt/format.h>

#include "base/units.h"
#include "supervisor/plan/graph.h"

namespace redrive {

double restore_s(const Trace& trace, UnitId unit, IntervalIndex interval) {
  return trace.settings().restore_cost_s + restore_s(trace.stored_bytes(unit, interval));
}

std::vector<OverBound> over_bound(const Trace& trace) {
  std::vector<OverBound> found;
  if (!trace.settings().keeps_bound()) return found;
  for (const auto& unit : trace.units()) {
    OverBound longest, run;
    for (const auto& interval : trace.intervals(unit.unit)) {
      if (startable(interval)) {
        run = {unit.unit, 0, trace.stored_bytes(unit.unit, interval.interval),
               restore_s(trace, unit.unit, interval.interval), 0};
      }
      run.interval = interval.interval;
      run.cpu_s += static_cast<double>(interval_extent(trace, unit.unit, interval.interval).cpu_ns) * 1e-9;
      if (run.predicted_s() > longest.predicted_s()) longest = run;
    }
    if (longest.predicted_s() > trace.settings().bound_s) found.push_back(longest);
  }
  return found;
}

std::string describe(const Trace& trace, const OverBound& over) {
  return fmt::format(
      "unit {} ({}): re-driving interval {} takes about {}, of which {} to restore {}: the bound of {} cannot be kept, "
      "but one of {} can",
      over.unit, trace.unit_name(over.unit), over.interval, format_duration(over.predicted_s()),
      format_duration(over.restore_s), format_size(over.memory_bytes), format_duration(trace.settings().bound_s),
      format_duration(over.predicted_s()));
}

}  // namespace redrive
