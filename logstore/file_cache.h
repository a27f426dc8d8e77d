// What recordings have learnt of the files that programs map, kept for the recordings that follow: a copy with its
// block sums, and facts that only the supervisor understands. It costs time to be without it, nothing else: whoever
// finds nothing here learns it anew, and no error of it is anybody's. FORMAT.md, "Cache".
//
// A file is known by its version, and only if that is sure to change with its bytes (stays() in file_cache.cc). An
// entry of another build of redrive, a damaged one, and a copy that is not what it was are as good as absent, and are
// replaced. Any number of recordings use the directory at once: all is written beside and renamed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/file_version.h"

namespace redrive {

// What is known of a file. Facts are opaque here, and empty if there are none.
struct FileFacts {
  std::string content;  // the name of its copies
  Bytes patch_plans;
  Bytes cpuid_sites;
};

// As it stands in the cache.
struct CacheEntry {
  std::string build;    // of the redrive that learnt it
  FileVersion version;  // of the file
  uint64_t filesystem = 0;
  std::string samples;  // hash of some of its bytes
  FileFacts facts;
  uint64_t copy_inode = 0;       // of the cache's copy, 0 if it has none
  int64_t copy_modified_ns = 0;  // ... when that was written
};
Bytes encode(const CacheEntry& entry);
std::optional<CacheEntry> decode_cache_entry(std::span<const uint8_t> payload);

class FileCache {
 public:
  static constexpr uint64_t kLimit = 2ull << 30;  // bytes of copies that no trace shares

  // $REDRIVE_CACHE_DIR, else $XDG_CACHE_HOME/redrive, else ~/.cache/redrive; empty if none of them is set.
  static std::string home();
  // Null if the directory cannot be made, is another user's, or others may write there.
  static std::unique_ptr<FileCache> open(const std::string& directory, uint64_t limit = kLimit);
  // The same, as another build of redrive would see it.
  static std::unique_ptr<FileCache> open(const std::string& directory, uint64_t limit, std::string build);

  // What is known of this version of the file at `path`, to be read and added to; null if nothing of it may be kept.
  FileFacts* of(const std::string& path, const FileVersion& version);
  // Makes `path` a copy of these contents, with its sums beside it, that shares the cache's bytes on disk. False, and
  // nothing is there, if the cache has none or is on another file system.
  bool put_copy(const FileFacts& facts, const std::string& path);
  // Adds what was learnt since open(), and the new ones of the copies below `directory`, which were synced.
  void keep(const std::string& directory);

 private:
  struct Known {
    CacheEntry entry;
    Bytes stored;  // as it was found
  };

  FileCache(Fd directory, uint64_t limit, std::string build);
  std::string entry_path(const CacheEntry& entry) const;
  std::string copy_path(const std::string& content) const { return base_ + "/copies/" + content; }
  std::string temporary(const std::string& path) const;
  std::optional<Known> look(const std::string& path, const FileVersion& version) const;
  void load(Known& known) const;
  bool has_copy(const CacheEntry& entry, const std::string& entry_file) const;
  bool share(const std::string& from, const std::string& to);
  bool keep_copy(CacheEntry& entry, const std::string& directory);
  bool publish(const std::string& from, const std::string& to);
  void write(const Known& known, const Bytes& payload) const;
  void prune() const;

  Fd directory_;
  std::string base_;  // its path, whatever is renamed
  uint64_t limit_;
  std::string build_;
  bool clones_ = true;  // until the file system says that it cannot
  bool shares_ = true;  // until a trace turns out to be on another file system
  std::map<FileVersion, std::optional<Known>> files_;
};

}  // namespace redrive
