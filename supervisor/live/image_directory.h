// A directory with CRIU's images of processes, and with the files that these name. It must stay where it is: images
// name files by their paths.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/live/live_spec.h"

namespace redrive {

class ImageDirectory {
 public:
  // Creates the directory, which must not exist.
  static Result<std::unique_ptr<ImageDirectory>> begin(const std::string& directory);
  // Removes the directory, unless all is done.
  ~ImageDirectory();
  ImageDirectory(const ImageDirectory&) = delete;
  ImageDirectory& operator=(const ImageDirectory&) = delete;

  const std::string& path() const { return path_; }  // absolute, without symbolic links
  // The program of the first process in the PID namespace: it waits for its children until there are none. It is tiny,
  // because all that the first process has mapped has to be restored too.
  std::string init() const { return path_ + "/init"; }

  // Lets processes have files in this directory as standard streams, and instead of those that they have open for
  // writing, which stay as they are. Adds to the notes what it has done.
  Result<void> adopt(LiveSpec& spec);
  // Copies a file that was mapped. Returns the path of the copy, the same for the same file.
  Result<std::string> add_mapped(const std::string& from, const std::string& recorded_path);
  // The images are there: adds the script that restores them. The directory stays.
  Result<void> finish();
  // That script. It cuts the files that processes write before each restore, because CRIU compares their lengths.
  std::string script() const { return path_ + "/restore"; }

 private:
  explicit ImageDirectory(std::string path) : path_(std::move(path)) {}
  Result<void> write_init() const;
  Result<std::string> written_copy(LiveObject& object);

  const std::string path_;
  std::map<std::string, std::string> mapped_;  // copies, by what they are copies of
  std::map<std::string, uint64_t> sizes_;      // of files in it that processes write
  bool done_ = false;
};

}  // namespace redrive
