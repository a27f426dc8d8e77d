#include "supervisor/record/code/mapped_file.h"

#include "checkpoint/address_space.h"

namespace redrive {
namespace {

std::optional<MappedFile> find(pid_t pid, const Mapping& mapping) {
  for (std::string& path : paths_of(pid, mapping)) {
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
