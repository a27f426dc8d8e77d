#include "supervisor/record/memory/outside_changes.h"

#include <fmt/format.h>

#include <algorithm>

#include "supervisor/record/memory/object_views.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/tracees.h"

namespace redrive {

// The places of the files, and of memory objects with a descriptor, that the process has mapped shared.
std::set<ObjectPlace> OutsideChanges::shared_places(const Process& process) {
  std::set<ObjectPlace> places;
  for (const uint64_t id : process.objects) {
    const MappedObject* const object = objects_.find(id);
    if (object && object->has_file) places.insert({object->device, object->inode});
  }
  return places;
}

void OutsideChanges::look_for_writers() {
  report_writers(outside_writers_.take());
  if (!outside_writers_.due()) return;
  std::set<ObjectPlace> places;
  for (const auto& [id, unit] : tracees_.units()) {
    for (const auto& process : unit->processes) places.merge(shared_places(*process));
  }
  outside_writers_.look(std::move(places));
}

void OutsideChanges::look_before_end(const Process& process) {
  if (!process.shares_memory || process.unit->processes.size() > 1) return;
  if (const auto places = shared_places(process); !places.empty()) report_writers(outside_writers(places, getpid()));
}

void OutsideChanges::report_writers(const std::vector<OutsideWriter>& writers) {
  for (const OutsideWriter& writer : writers) {
    const MappedObject* const object = objects_.find(writer.object.first, writer.object.second);
    if (!object) continue;
    for (const auto& [id, unit] : tracees_.units()) {
      if (!object_views_.count(*object, *unit)) continue;
      const std::string who = fmt::format("{}, {}", writer.command, writer.pid);
      findings_.add_unsure(*unit,
                           object->name + ", which it maps, can be changed by a process that is not recorded (" + who +
                               "): start both under one record",
                           0);  // since when is not known
    }
  }
}

void OutsideChanges::report_changes() {
  const auto changed = objects_.take_changed();
  if (changed.empty()) return;
  for (const uint64_t id : changed) {
    const bool ours = std::any_of(tracees_.threads().begin(), tracees_.threads().end(),
                                  [&](const auto& entry) { return entry.second->call.changes_object == id; });
    const MappedObject* const object = objects_.find(id);
    if (ours || !object) continue;
    for (const auto& [unit, recorded] : tracees_.units()) {
      if (!object_views_.count(*object, *recorded)) continue;
      findings_.add_unsure(*recorded, object->name + ", which it maps, was changed by a process that is not recorded");
    }
  }
}

}  // namespace redrive
