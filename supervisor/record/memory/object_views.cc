#include "supervisor/record/memory/object_views.h"

#include <algorithm>

#include "checkpoint/address_space.h"
#include "supervisor/record/tracees/tracees.h"

namespace redrive {

std::vector<ObjectViews::View> ObjectViews::of(const MappedObject& object, const Unit& unit, FileRange range) {
  std::vector<View> found;
  for (const auto& process : unit.processes) {
    if (process->borrows_memory || !process->objects.contains(object.id)) continue;
    for (const auto& view : process->shared_mappings->of(process->memory.pid(), object.device, object.inode, range)) {
      found.push_back({view, process.get()});
    }
  }
  return found;
}

size_t ObjectViews::count(const MappedObject& object, const Process& process) {
  if (process.borrows_memory || !process.objects.contains(object.id)) return 0;
  return process.shared_mappings->count(process.memory.pid(), object.device, object.inode);
}

size_t ObjectViews::count(const MappedObject& object, const Unit& unit) {
  size_t sum = 0;
  for (const auto& process : unit.processes) sum += count(object, *process);
  return sum;
}

void ObjectViews::note_sharing(const MappedObject& object, const Unit& unit) {
  for (const auto& process : unit.processes) process->shares_memory |= count(object, *process) > 0;
}

Unit* ObjectViews::other_user(const MappedObject& object, const Unit& unit) const {
  for (const auto& [id, other] : tracees_.units()) {
    if (other.get() != &unit && count(object, *other)) return other.get();
  }
  return nullptr;
}

std::string ObjectViews::shared_by(const Process& process) const {
  for (const uint64_t id : process.objects) {
    const auto found = objects_.all().find(id);
    if (found != objects_.all().end() && found->second.writable) return found->second.name;
  }
  return {};
}

bool ObjectViews::is_mapped(const MappedObject& object) const {
  return std::any_of(tracees_.units().begin(), tracees_.units().end(),
                     [&](const auto& entry) { return count(object, *entry.second) > 0; });
}

}  // namespace redrive
