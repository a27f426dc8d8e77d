// Under which names a file can be found, after names have changed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace redrive {

// A call that has changed names, with absolute paths (plain_path).
struct NameChanged {
  int64_t number = 0;  // of the call: SYS_unlink, ...
  uint64_t flags = 0;  // renameat2(2)
  std::string from, to;
};

// Of an absolute path, one that is equal to those of the same file, unless its last part is a symbolic link.
std::string plain_path(const std::string& path);

// All names, the first of them that which it has had for longest; empty: it has none.
std::vector<std::string> names_after(const std::string& opened, std::span<const NameChanged> changes);

}  // namespace redrive
