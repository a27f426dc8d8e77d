#include "supervisor/record/memory/mapped_objects.h"

#include <sys/inotify.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>

namespace redrive {

uint64_t object_id(uint64_t device, uint64_t inode) {
  const uint64_t name[] = {device, inode};
  return XXH3_64bits(name, sizeof name) | 1;
}

MappedObject& MappedObjects::of(const Mapping& mapping) {
  const uint64_t id = object_id(mapping.device, mapping.inode);
  const auto [place, fresh] = objects_.try_emplace(id);
  MappedObject& object = place->second;
  if (fresh) object.file_device = mapping.device, object.file_inode = mapping.inode;
  object.id = id;
  object.device = mapping.device;
  object.inode = mapping.inode;
  object.name = mapping.name;
  return object;
}

MappedObject* MappedObjects::find(uint64_t device, uint64_t inode) {
  MappedObject* const object = find(object_id(device, inode));
  return object && object->device == device && object->inode == inode ? object : nullptr;
}

MappedObject* MappedObjects::find(uint64_t id) {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : &found->second;
}

MappedObject* MappedObjects::find_file(uint64_t device, uint64_t inode) {
  const auto found = files_.find({device, inode});
  MappedObject* const object = found == files_.end() ? find(device, inode) : find(found->second);
  return object && object->file_device == device && object->file_inode == inode ? object : nullptr;
}

void MappedObjects::note_file(MappedObject& object, uint64_t device, uint64_t inode) {
  object.file_device = device;
  object.file_inode = inode;
  if (device != object.device || inode != object.inode) files_[{device, inode}] = object.id;
}

void MappedObjects::forget(uint64_t id) {
  objects_.erase(id);
  std::erase_if(files_, [&](const auto& entry) { return entry.second == id; });
  for (auto watch = watches_.begin(); watch != watches_.end();) {
    if (watch->second == id) {
      inotify_rm_watch(inotify_.get(), watch->first);
      watch = watches_.erase(watch);
    } else {
      ++watch;
    }
  }
}

void MappedObjects::watch(const MappedObject& object, const std::string& path) {
  const bool watched =
      std::any_of(watches_.begin(), watches_.end(), [&](const auto& entry) { return entry.second == object.id; });
  if (watched) return;
  if (!inotify_) inotify_ = Fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  // Without one (the user's limit) changes from outside go unseen, as those through mappings do.
  const int watch = inotify_ ? inotify_add_watch(inotify_.get(), path.c_str(), IN_MODIFY) : -1;
  if (watch >= 0) watches_[watch] = object.id;
}

std::set<uint64_t> MappedObjects::take_changed() {
  std::set<uint64_t> changed;
  if (!inotify_) return changed;
  alignas(inotify_event) char buffer[4096];
  for (ssize_t got; (got = read(inotify_.get(), buffer, sizeof buffer)) > 0;) {
    for (ssize_t at = 0; at < got;) {
      const auto& event = *reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof event + event.len);
      const auto watch = watches_.find(event.wd);
      if (watch != watches_.end() && (event.mask & IN_MODIFY)) changed.insert(watch->second);
    }
  }
  return changed;
}

}  // namespace redrive
