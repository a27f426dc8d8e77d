// Reads everything in a trace, as far as logstore alone understands it.
#pragma once

#include "logstore/trace.h"

namespace redrive::fuzz {

// True if something was reported. `catalog`: also makes a catalog, which takes most of the time.
inline bool read_all(const Trace& trace, bool catalog) {
  bool reported = false;
  const auto note = [&](bool good) { reported |= !good; };
  for (const auto& unit : trace.units()) {
    uint64_t sum = 0;
    note(static_cast<bool>(trace.for_each_event(unit.unit, 0, UINT64_MAX, [&](EventIndex, const Event& event) {
      sum += event.writes.size();
      return true;
    })));
    (void)trace.event_count(unit.unit);
    (void)trace.find_unit(trace.unit_name(unit.unit));
    for (const auto& interval : trace.intervals(unit.unit)) {
      auto image = trace.image(unit.unit, interval.interval);
      if (interval.has_image) note(static_cast<bool>(image));
      if (!image) continue;
      note(static_cast<bool>(trace.read_pages(image->pages, [](std::span<const PageRef>) { return Result<void>(); })));
    }
  }
  for (const auto& [id, file] : trace.files()) note(static_cast<bool>(trace.file_path(id)));
  note(check_trace(trace).empty());
  if (catalog) note(static_cast<bool>(catalog_path(trace)));
  (void)trace.size_on_disk();
  return reported;
}

}  // namespace redrive::fuzz
