// An empty directory among the temporary files, as long as this exists.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace redrive {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::error_code ignored;
    path_ = std::filesystem::temp_directory_path(ignored) / "redrive-live.XXXXXX";
    made_ = mkdtemp(path_.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (made_) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  explicit operator bool() const { return made_; }

 private:
  std::string path_;
  bool made_ = false;
};

}  // namespace redrive
