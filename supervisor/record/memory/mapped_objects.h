// The files and memory objects that recorded processes have mapped shared (mmap(2), shmat(2)).
//
// As long as all that map one do so for reading, and no recorded process writes to it, its contents are those of the
// trace's copy, and the units that map it need not know of each other. From the first mapping through which it can be
// written, or the first call that changes it, it is *writable*: then one unit holds all processes that map it, each
// change by a call is recorded, and images hold its contents.
//
// A *private view* of a file (MAP_PRIVATE) shows what becomes of the file as long as the process has not written to the
// page. Such files are objects too, and calls that change them are seen, but they join no units: what a call changes of
// what a view shows is written into the memory of the process that has it.
//
// Writes by processes that are not recorded are found where the kernel reports them: those by calls, not those through
// mappings. For files that are mapped shared it reports them at once (inotify(7)); for others, their times show them
// (stat(2)).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/file_version.h"
#include "base/result.h"
#include "checkpoint/unit_state.h"

namespace redrive {

// The id of an object, derived from the host's. Never 0.
uint64_t object_id(uint64_t device, uint64_t inode);

struct MappedObject {
  uint64_t id = 0;
  uint64_t device = 0;  // as in /proc/PID/maps
  uint64_t inode = 0;
  std::string name;
  uint64_t file_device = 0;  // as stat(2) tells it: another one where overlayfs has layers on several file systems
  uint64_t file_inode = 0;
  bool has_file = false;  // descriptors lead to it, so calls can change it
  bool writable = false;
  bool writable_mapping = false;  // ... through a mapping: it changes at no call
  uint64_t copy = 0;              // the trace's copy of it, as long as it is not writable
  // For an object of which there are private views:
  std::optional<FileVersion> version;  // as they show it
  bool changed = false;                // since there were any
  bool unseen_views = false;           // there may be more than the recorder has been told of: mapping it does not stop
};

class MappedObjects {
 public:
  // The object that the mapping shows; it is created if necessary.
  MappedObject& of(const Mapping& mapping);
  // Null if no recorded process has mapped it shared.
  MappedObject* find(uint64_t device, uint64_t inode);
  MappedObject* find(uint64_t id);
  // The same by what stat(2) tells of a file.
  MappedObject* find_file(uint64_t device, uint64_t inode);
  // Notes what it tells of the object's file.
  void note_file(MappedObject& object, uint64_t device, uint64_t inode);
  const std::map<uint64_t, MappedObject>& all() const { return objects_; }
  void forget(uint64_t id);

  // From now on changes of the file behind this path, which is the object, are noted.
  void watch(const MappedObject& object, const std::string& path);
  // The objects that a call has changed since the last time.
  std::set<uint64_t> take_changed();

 private:
  std::map<uint64_t, MappedObject> objects_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t>
      files_;  // objects, by what stat(2) tells of them, where that differs
  Fd inotify_;
  std::map<int, uint64_t> watches_;  // objects, by watch descriptor
};

}  // namespace redrive
