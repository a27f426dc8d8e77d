#include "logstore/memory_storage.h"

#include <algorithm>

namespace redrive {

class MemoryFile : public File {
 public:
  MemoryFile(MemoryStorage* storage, std::string path, std::shared_ptr<MemoryStorage::Contents> contents)
      : storage_(storage), path_(std::move(path)), contents_(std::move(contents)) {}

  Result<void> append(std::span<const uint8_t> data) override {
    const Lock lock(storage_->mutex_);
    const bool refused = storage_->refuse();
    const size_t taken = refused ? data.size() / 2 : data.size();
    contents_->data.insert(contents_->data.end(), data.begin(), data.begin() + static_cast<ptrdiff_t>(taken));
    if (refused) return errno_error("cannot write " + path_, ENOSPC);
    return {};
  }
  Result<size_t> read(uint64_t offset, std::span<uint8_t> to) const override {
    const Lock lock(storage_->mutex_);
    const auto& data = contents_->data;
    if (offset >= data.size()) return size_t{0};
    const size_t n = std::min<size_t>(to.size(), data.size() - offset);
    std::copy_n(data.begin() + static_cast<ptrdiff_t>(offset), n, to.begin());
    return n;
  }
  Result<void> truncate(uint64_t size) override {
    const Lock lock(storage_->mutex_);
    if (storage_->refuse()) return errno_error("cannot truncate " + path_, ENOSPC);
    contents_->data.resize(size);
    contents_->synced = std::min<size_t>(contents_->synced, size);
    return {};
  }
  uint64_t size() const override {
    const Lock lock(storage_->mutex_);
    return contents_->data.size();
  }

 private:
  MemoryStorage* storage_;
  std::string path_;
  std::shared_ptr<MemoryStorage::Contents> contents_;
};

void MemoryStorage::lose_unsynced(bool keep_sizes) {
  const Lock lock(mutex_);
  for (auto& [path, contents] : files_) {
    const size_t size = contents->data.size();
    contents->data.resize(contents->synced);
    if (keep_sizes) contents->data.resize(size);
  }
}

Bytes& MemoryStorage::bytes(const std::string& path) {
  const Lock lock(mutex_);
  ASSERT(files_.contains(path));
  return files_[path]->data;
}

std::vector<std::string> MemoryStorage::all_files() const {
  const Lock lock(mutex_);
  std::vector<std::string> paths;
  for (const auto& [path, contents] : files_) paths.push_back(path);
  return paths;
}

Result<std::unique_ptr<File>> MemoryStorage::create(const std::string& path) {
  const Lock lock(mutex_);
  if (refuse()) return errno_error("cannot create " + path, ENOSPC);
  auto contents = std::make_shared<Contents>();
  files_[path] = contents;
  return std::unique_ptr<File>(std::make_unique<MemoryFile>(this, path, std::move(contents)));
}

Result<std::unique_ptr<File>> MemoryStorage::open(const std::string& path) {
  const Lock lock(mutex_);
  const auto it = files_.find(path);
  if (it == files_.end()) return errno_error("cannot open " + path, ENOENT);
  return std::unique_ptr<File>(std::make_unique<MemoryFile>(this, path, it->second));
}

bool MemoryStorage::exists(const std::string& path) {
  const Lock lock(mutex_);
  return files_.contains(path) || directories_.contains(path);
}

Result<void> MemoryStorage::make_directory(const std::string& path) {
  const Lock lock(mutex_);
  if (refuse()) return errno_error("cannot make directory " + path, ENOSPC);
  if (!directories_.insert(path).second) return already_exists(path);
  return {};
}

Result<void> MemoryStorage::link(const std::string& from, const std::string& to) {
  const Lock lock(mutex_);
  if (refuse()) return errno_error("cannot link " + from + " to " + to, ENOSPC);
  const auto it = files_.find(from);
  if (it == files_.end()) return errno_error("cannot link " + from + " to " + to, ENOENT);
  files_[to] = it->second;
  return {};
}

Result<void> MemoryStorage::rename(const std::string& from, const std::string& to) {
  const Lock lock(mutex_);
  if (refuse()) return errno_error("cannot rename " + from + " to " + to, ENOSPC);
  if (directories_.erase(from)) {
    const std::string prefix = from + "/";
    const auto moved = [&](const std::string& path) {
      return path.starts_with(prefix) ? to + path.substr(from.size()) : path;
    };
    std::map<std::string, std::shared_ptr<Contents>> files;
    for (auto& [path, contents] : files_) files[moved(path)] = std::move(contents);
    files_ = std::move(files);
    std::set<std::string> directories{to};
    for (const auto& path : directories_) directories.insert(moved(path));
    directories_ = std::move(directories);
    return {};
  }
  const auto it = files_.find(from);
  if (it == files_.end()) return errno_error("cannot rename " + from + " to " + to, ENOENT);
  files_[to] = std::move(it->second);
  files_.erase(from);
  return {};
}

Result<void> MemoryStorage::remove(const std::string& path) {
  const Lock lock(mutex_);
  if (files_.erase(path) + directories_.erase(path) == 0) return errno_error("cannot remove " + path, ENOENT);
  return {};
}

Result<std::vector<std::string>> MemoryStorage::list(const std::string& directory) {
  const Lock lock(mutex_);
  if (!directories_.contains(directory)) return errno_error("cannot list " + directory, ENOENT);
  const std::string prefix = directory + "/";
  std::vector<std::string> names;
  for (const auto& [path, contents] : files_) {
    if (path.starts_with(prefix) && path.find('/', prefix.size()) == std::string::npos) {
      names.push_back(path.substr(prefix.size()));
    }
  }
  return names;
}

Result<std::vector<std::string>> MemoryStorage::list_directories(const std::string& directory) {
  const Lock lock(mutex_);
  if (!directories_.contains(directory)) return errno_error("cannot list " + directory, ENOENT);
  const std::string prefix = directory + "/";
  std::vector<std::string> names;
  for (const auto& path : directories_) {
    if (path.starts_with(prefix) && path.find('/', prefix.size()) == std::string::npos) {
      names.push_back(path.substr(prefix.size()));
    }
  }
  return names;
}

Result<void> MemoryStorage::sync(const std::vector<std::string>& paths) {
  const Lock lock(mutex_);
  for (const auto& path : paths) {
    if (refuse()) return errno_error("cannot write " + path, ENOSPC);
    const auto it = files_.find(path);
    if (it != files_.end()) it->second->synced = it->second->data.size();
  }
  return {};
}

}  // namespace redrive
