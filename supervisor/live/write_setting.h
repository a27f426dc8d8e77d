// Settings of the kernel that are files.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

namespace redrive {

// Writes all of it at once, as such files want it. False, with errno, if that fails.
inline bool write_setting(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int err = errno;
  ::close(fd);
  errno = err;
  return written;
}

}  // namespace redrive
