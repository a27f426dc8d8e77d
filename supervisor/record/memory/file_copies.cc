#include "supervisor/record/memory/file_copies.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <string>

#include "base/procfs.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/tracees/findings.h"

namespace redrive {

bool FileCopies::is_usable(std::map<FileVersion, uint64_t>::const_iterator known) const {
  return known != file_ids_.end() && writer_.has_file(known->second);
}

Result<uint64_t> FileCopies::file_of(MappedFiles& files, const Mapping& mapping) {
  const MappedFile* file = files.of(mapping);
  if (!file) return Error{"cannot open the mapped file " + mapping.name};
  if (const auto known = file_ids_.find(file->version); is_usable(known)) return known->second;
  auto id = writer_.add_file(file->path, mapping.name);
  if (id) file_ids_[file->version] = *id;
  return id;
}

std::optional<FileCopies::KnownFile> FileCopies::look_at_file(Thread& thread, int64_t result) {
  Process& process = *thread.process;
  const std::string path = descriptor_path(thread.tid, thread.call.args[4]);
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    findings_.add_unsure(*process.unit, "a mapped file could not be found in /proc");
    return std::nullopt;
  }
  if (S_ISCHR(info.st_mode)) return std::nullopt;  // /dev/zero: anonymous memory
  char name[PATH_MAX] = {};
  if (readlink(path.c_str(), name, sizeof name - 1) < 0) name[0] = 0;
  const FileVersion version = version_of(info);
  KnownFile file{0, version, name, version.device, version.inode};
  if (const auto made = mapping_of(process.memory.pid(), static_cast<Address>(result))) {
    file.device = made->device;
    file.inode = made->inode;
  }
  const auto known = file_ids_.find(version);
  if (is_usable(known)) {
    file.id = known->second;
    return file;
  }
  const auto id = writer_.add_file(path, name);
  if (!id) {
    findings_.add_unsure(*process.unit, "a mapped file could not be copied: " + id.error().message);
    return file;
  }
  file.id = *id;
  const MappedObject* const object = objects_.find(file.device, file.inode);
  if (!object || !object->writable_mapping) file_ids_[version] = *id;
  return file;
}

void FileCopies::forget(uint64_t device, uint64_t inode) {
  std::erase_if(file_ids_,
                [&](const auto& known) { return known.first.device == device && known.first.inode == inode; });
}

const FileCopies::KnownFile* FileCopies::served(uint32_t place) const {
  const auto known = served_files_.find(place);
  return known == served_files_.end() ? nullptr : &known->second;
}

}  // namespace redrive
