// A version of a file. As long as these fields are the same, so are the file's bytes, except in the cases that
// logstore/file_cache.h guards against.
#pragma once

#include <sys/stat.h>

#include <compare>
#include <cstdint>

namespace redrive {

struct FileVersion {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
  auto operator<=>(const FileVersion&) const = default;
};

inline int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

inline FileVersion version_of(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size), nanoseconds(info.st_mtim),
          nanoseconds(info.st_ctim)};
}

}  // namespace redrive
