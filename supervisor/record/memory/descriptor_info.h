#pragma once

#include <fcntl.h>
#include <fmt/format.h>

#include <cstdint>

#include "base/procfs.h"

namespace redrive {

// What the kernel says of a descriptor (proc_pid_fdinfo(5)).
struct DescriptorInfo {
  uint64_t position = 0;
  uint64_t flags = 0;

  static DescriptorInfo read(pid_t pid, uint64_t fd) {
    const ProcValues values(proc_path(pid, fmt::format("fdinfo/{}", static_cast<int>(fd))));
    return {values.number("pos"), values.number("flags", 8)};
  }
  bool writes() const { return (flags & O_ACCMODE) != O_RDONLY; }
};

}  // namespace redrive
