#include "supervisor/live/file_names.h"

#include <linux/fs.h>
#include <sys/syscall.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace redrive {
namespace {

bool is_rename(const NameChanged& change) {
  return change.number == SYS_rename || change.number == SYS_renameat || change.number == SYS_renameat2;
}

// What the name is after `from`, it or a directory above it, has become `to`.
std::optional<std::string> moved(const std::string& name, const std::string& from, const std::string& to) {
  if (name == from) return to;
  if (name.starts_with(from + "/")) return to + name.substr(from.size());
  return std::nullopt;
}

}  // namespace

std::string plain_path(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path normal = fs::path(path).lexically_normal();
  std::error_code ignored;
  const fs::path directory = fs::weakly_canonical(normal.parent_path(), ignored);
  return ((ignored ? normal.parent_path() : directory) / normal.filename()).string();
}

std::vector<std::string> names_after(const std::string& opened, std::span<const NameChanged> changes) {
  std::vector<std::string> names{opened};
  for (const NameChanged& change : changes) {
    const bool renames = is_rename(change), exchanges = renames && change.flags & RENAME_EXCHANGE;
    if (change.number == SYS_link || change.number == SYS_linkat) {
      if (std::find(names.begin(), names.end(), change.from) != names.end()) names.push_back(change.to);
      continue;
    }
    std::vector<std::string> left;
    for (const std::string& name : names) {
      const auto there = renames ? moved(name, change.from, change.to) : std::nullopt;
      const auto back = exchanges ? moved(name, change.to, change.from) : std::nullopt;
      const bool lost = name == (renames ? change.to : change.from);
      if (there || back || !lost) left.push_back(there ? *there : back ? *back : name);
    }
    names = std::move(left);
  }
  return names;
}

}  // namespace redrive
