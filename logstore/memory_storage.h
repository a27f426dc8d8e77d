// The disk's twin in memory, for tests and the fuzzer. It can refuse the Nth change, like a full disk, and forget what
// was not synced, like a power failure. Thread-safe.
#pragma once

#include <map>
#include <set>

#include "base/bytes.h"
#include "base/mutex.h"
#include "logstore/storage.h"

namespace redrive {

class MemoryStorage : public Storage {
 public:
  struct Contents {
    Bytes data;
    size_t synced = 0;  // bytes that survive a power failure
  };

  // The change (create, append, rename, ...) with this number, counted from 0, fails with ENOSPC, and so do all later
  // ones. An append that fails leaves the first half of its bytes.
  void fail_from(uint64_t change) {
    const Lock lock(mutex_);
    fail_from_ = change;
  }
  uint64_t changes() const {
    const Lock lock(mutex_);
    return changes_;
  }
  // Does what a power failure does: unsynced bytes are lost, or read as zeros if `keep_sizes`.
  void lose_unsynced(bool keep_sizes);
  // The bytes of a file, which must exist, for inspecting or damaging them.
  Bytes& bytes(const std::string& path);
  std::vector<std::string> all_files() const;

  Result<std::unique_ptr<File>> create(const std::string& path) override;
  Result<std::unique_ptr<File>> append_to(const std::string& path) override { return open(path); }
  Result<std::unique_ptr<File>> open(const std::string& path) override;
  bool exists(const std::string& path) override;
  Result<void> make_directory(const std::string& path) override;
  Result<void> link(const std::string& from, const std::string& to) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& directory) override;
  Result<std::vector<std::string>> list_directories(const std::string& directory) override;
  Result<void> sync(const std::vector<std::string>& paths) override;
  Fd lock(const std::string&) override { return {}; }  // nobody else can ask
  bool locked(const std::string&) override { return false; }
  bool has_real_paths() const override { return false; }

 private:
  friend class MemoryFile;
  bool refuse() REQUIRES(mutex_) { return changes_++ >= fail_from_; }

  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<Contents>> files_ GUARDED_BY(mutex_);
  std::set<std::string> directories_ GUARDED_BY(mutex_);
  uint64_t changes_ GUARDED_BY(mutex_) = 0;
  uint64_t fail_from_ GUARDED_BY(mutex_) = UINT64_MAX;
};

}  // namespace redrive
