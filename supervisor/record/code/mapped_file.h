// Which file a mapping shows, and which version of it: files are overwritten between two programs that map them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/file_version.h"
#include "base/procfs.h"
#include "checkpoint/unit_state.h"

namespace redrive {

struct MappedFile {
  std::string path;  // by which it can be opened as long as the process has it mapped
  FileVersion version;
};

// The files of one process's mappings, asked for once each.
class MappedFiles {
 public:
  explicit MappedFiles(pid_t pid) : pid_(pid) {}
  // Notes that the file with this stat(2) is at this path.
  void add(const std::string& path, const struct stat& info) {
    known_[{info.st_dev, info.st_ino}] = MappedFile{path, version_of(info)};
  }
  // Null if the mapping shows no file, or one that cannot be reached.
  const MappedFile* of(const Mapping& mapping);

 private:
  pid_t pid_;
  std::map<std::pair<uint64_t, uint64_t>, std::optional<MappedFile>> known_;  // by device and inode
};

}  // namespace redrive
