#include "supervisor/replay/event_cycle.h"

#include <fmt/format.h>

#include <algorithm>

namespace redrive {

Result<std::vector<Event>> read_cycle(const Trace& trace, UnitId unit, EventIndex index, const Event& event) {
  std::vector<Event> cycle;
  const EventIndex end = index + 1;
  if (event.cycle <= end) {
    TRY(trace.for_each_event(unit, end - event.cycle, end, [&](EventIndex, const Event& found) {
      cycle.push_back(found);
      return true;
    }));
  }
  const bool usable = cycle.size() == event.cycle && std::all_of(cycle.begin(), cycle.end(), [&](const Event& found) {
                        return found.kind == EventKind::syscall && found.thread == event.thread && !found.fatal &&
                               !found.receive && !found.send && !found.map && !found.registers &&
                               (found.repeat == 1 || &found == &cycle.back());
                      });
  if (usable) return cycle;
  return Error{fmt::format("event {} of unit {} goes on with a cycle of calls that are not there", index, unit),
               Status::damaged};
}

}  // namespace redrive
