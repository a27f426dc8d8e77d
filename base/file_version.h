// A version of a file. As long as these fields are the same, so are the file's bytes, if it is_settled(), except in the
// cases that logstore/file_cache.h guards against.
#pragma once

#include <sys/stat.h>
#include <time.h>

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

// Whether a change from now on gives the file another version: one in the same tick of its file system's clock as the
// change before does not. A time of whole seconds may be that of a clock that ticks every 2 s, as FAT's. All others
// tick at least every 10 ms.
inline bool is_settled(const FileVersion& version) {
  constexpr int64_t kSecond_ns = 1'000'000'000;
  const int64_t tick_ns = version.changed_ns % kSecond_ns == 0 ? 2 * kSecond_ns : kSecond_ns / 100;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t age_ns = nanoseconds(now) - version.changed_ns;  // negative if the clock was set back
  return age_ns > 2 * tick_ns || age_ns < -2 * tick_ns;
}

}  // namespace redrive
