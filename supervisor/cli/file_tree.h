// Directories in which a trace's copies of files have the names that the files had, so that a debugger that is told to
// look there (set sysroot) finds the files that were mapped, and not what the machine has under these names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/cli/recorded_memory.h"

namespace redrive {

// What one process has mapped.
struct NamedFiles {
  std::map<std::string, uint64_t> files;     // the trace's copies, by path
  std::map<std::string, std::string> links;  // other names for some of these paths
};

class FileTree {
 public:
  // Both must outlive it. `directory` exists.
  FileTree(const Trace& trace, OpenCopies& copies, std::string directory)
      : trace_(trace), copies_(copies), directory_(std::move(directory)) {}

  // Copies the files, if they are not there yet. Returns the directory: the first one in which no other file has any of
  // these names, because a file may be replaced by another one while it is recorded. Names that are no absolute paths
  // are left out.
  Result<std::string> add(const NamedFiles& named);
  // The path of a file below such a directory; empty if it is left out.
  static std::string path_in(const std::string& root, const std::string& path);
  uint64_t bytes() const { return bytes_; }  // of all copies

 private:
  // What each name stands for: a copy, or a link to a path.
  using Names = std::map<std::string, std::string>;
  struct Root {
    std::string path;
    Names names;
  };

  Names names_of(const NamedFiles& named) const;
  Root& root_for(const Names& names);
  Result<void> copy(uint64_t file, const std::string& to);

  const Trace& trace_;
  OpenCopies& copies_;
  const std::string directory_;
  std::vector<Root> roots_;
  uint64_t bytes_ = 0;
};

}  // namespace redrive
