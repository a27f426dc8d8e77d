#pragma once

#include <fcntl.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace redrive {

// What the kernel says of a descriptor (proc_pid_fdinfo(5)).
struct DescriptorInfo {
  uint64_t position = 0;
  unsigned long flags = 0;

  static DescriptorInfo read(pid_t pid, uint64_t fd) {
    DescriptorInfo info;
    std::ifstream file("/proc/" + std::to_string(pid) + "/fdinfo/" + std::to_string(static_cast<int>(fd)));
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("pos:")) info.position = std::strtoull(line.c_str() + 4, nullptr, 10);
      if (line.starts_with("flags:")) info.flags = std::strtoul(line.c_str() + 6, nullptr, 8);
    }
    return info;
  }
  bool writes() const { return (flags & O_ACCMODE) != O_RDONLY; }
};

}  // namespace redrive
