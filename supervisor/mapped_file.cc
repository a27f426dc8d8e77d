#include "supervisor/mapped_file.h"

#include <cstdio>

namespace redrive {
namespace {

// map_files wants a capability; the path serves as well while it names the same file (proc_pid_map_files(5)).
std::optional<MappedFile> find(pid_t pid, const Mapping& mapping) {
  char range[64];
  std::snprintf(range, sizeof range, "/map_files/%lx-%lx", mapping.start, mapping.end);
  const std::string base = "/proc/" + std::to_string(pid);
  for (std::string path : {base + range, base + "/root" + mapping.name}) {
    struct stat info {};
    if (stat(path.c_str(), &info) == 0 && info.st_ino == mapping.inode)
      return MappedFile{std::move(path), version_of(info)};
  }
  return std::nullopt;
}

}  // namespace

const MappedFile* MappedFiles::of(const Mapping& mapping) {
  if (mapping.inode == 0) return nullptr;
  auto [known, fresh] = known_.try_emplace({mapping.device, mapping.inode});
  if (fresh) known->second = find(pid_, mapping);
  return known->second ? &*known->second : nullptr;
}

}  // namespace redrive
