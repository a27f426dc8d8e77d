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

// The copy of this version, which is made unless the trace has it.
Result<FileCopies::KnownFile> FileCopies::copy_of(const FileVersion& version, const std::string& open_path,
                                                  const std::string& name) {
  KnownFile copy{0, version, name, version.device, version.inode, true};
  const auto known = file_ids_.find(version);
  if (known != file_ids_.end() && writer_.has_file(known->second)) {
    copy.id = known->second;
    return copy;
  }
  const MappedObject* const object = objects_.find_file(version.device, version.inode);
  copy.identified = is_settled(version) && !(object && object->writable_mapping);
  ASSIGN_OR_RETURN(copy.id, writer_.add_file(open_path, name, copy.identified));
  if (copy.identified) file_ids_[version] = copy.id;
  return copy;
}

Result<uint64_t> FileCopies::file_of(MappedFiles& files, const Mapping& mapping) {
  const MappedFile* file = files.of(mapping);
  if (!file) return Error{"cannot open the mapped file " + mapping.name};
  ASSIGN_OR_RETURN(const KnownFile copy, copy_of(file->version, file->path, mapping.name));
  return copy.id;
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
  auto copy = copy_of(version, path, name);
  if (!copy) {
    findings_.add_unsure(*process.unit, "a mapped file could not be copied: " + copy.error().message);
    copy = KnownFile{0, version, name, version.device, version.inode, false};
  }
  if (const auto made = mapping_of(process.memory.pid(), static_cast<Address>(result))) {
    copy->device = made->device;
    copy->inode = made->inode;
  }
  return std::move(*copy);
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
