#include "supervisor/cli/file_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/address_space.h"

namespace redrive {
namespace {

namespace fs = std::filesystem;

// A trace may name anything: what is written must stay below the root.
bool is_plain(const fs::path& path) {
  return path.is_absolute() && path.has_filename() && path.native() == path.lexically_normal().native();
}

Result<void> make_parents(const fs::path& path) {
  std::error_code failure;
  fs::create_directories(path.parent_path(), failure);
  if (failure) return Error{fmt::format("cannot create {}: {}", path.parent_path().string(), failure.message())};
  return {};
}

}  // namespace

std::string FileTree::path_in(const std::string& root, const std::string& path) {
  return is_plain(path) ? root + path : std::string();
}

FileTree::Names FileTree::names_of(const NamedFiles& named) const {
  Names names;
  for (const auto& [path, file] : named.files) {
    if (is_plain(path)) names[path] = trace_.files().at(file).copy;
  }
  for (const auto& [link, path] : named.links) {
    const std::string normal = fs::path(link).lexically_normal().string();
    if (is_plain(normal) && names.contains(path)) names.try_emplace(normal, path);
  }
  return names;
}

FileTree::Root& FileTree::root_for(const Names& names) {
  const auto fits = [&](const Root& root) {
    return std::all_of(names.begin(), names.end(), [&](const auto& name) {
      const auto known = root.names.find(name.first);
      return known == root.names.end() || known->second == name.second;
    });
  };
  const auto found = std::find_if(roots_.begin(), roots_.end(), fits);
  if (found != roots_.end()) return *found;
  const std::string number = roots_.empty() ? "" : fmt::format(".{}", roots_.size() + 1);
  return roots_.emplace_back(Root{directory_ + "/root" + number, {}});
}

Result<std::string> FileTree::add(const NamedFiles& named) {
  const Names names = names_of(named);
  Root& root = root_for(names);
  for (const auto& [path, what] : names) {
    if (!root.names.emplace(path, what).second) continue;
    const fs::path at = root.path + path;
    TRY(make_parents(at));
    const auto file = named.files.find(path);
    if (file != named.files.end()) {
      TRY(copy(file->second, at.string()));
      continue;
    }
    std::error_code failure;
    fs::create_symlink(fs::path(root.path + what).lexically_relative(at.parent_path()), at, failure);
    if (failure) return Error{fmt::format("cannot create {}: {}", at.string(), failure.message())};
  }
  return root.path;
}

// A clone of the trace's copy where the file system can make one.
Result<void> FileTree::copy(uint64_t file, const std::string& to) {
  constexpr size_t kAtOnce = 1 << 20;
  ASSIGN_OR_RETURN(const int source, copies_.get(file));
  const Fd target(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0777));
  struct stat info {};
  if (!target || fstat(source, &info) != 0) return errno_error("cannot create " + to);
  bytes_ += static_cast<uint64_t>(info.st_size);
  if (ioctl(target.get(), FICLONE, source) == 0) return {};
  Bytes buffer(kAtOnce);
  for (const FileRange& range : data_ranges(source, 0, static_cast<uint64_t>(info.st_size))) {
    for (uint64_t at = range.start; at < range.end;) {
      const size_t wanted = std::min<uint64_t>(kAtOnce, range.end - at);
      const ssize_t got = pread(source, buffer.data(), wanted, static_cast<off_t>(at));
      if (got <= 0) return got < 0 ? errno_error("cannot read the trace's copy of a file") : Result<void>();
      for (ssize_t done = 0; done < got;) {
        const ssize_t put =
            pwrite(target.get(), buffer.data() + done, static_cast<size_t>(got - done), static_cast<off_t>(at) + done);
        if (put < 0) return errno_error("cannot write " + to);
        done += put;
      }
      at += static_cast<uint64_t>(got);
    }
  }
  if (ftruncate(target.get(), info.st_size) != 0) return errno_error("cannot write " + to);
  return {};
}

}  // namespace redrive
