// What recordings have learnt about the files that programs map, kept for later recordings: a copy with its block sums,
// and facts that only the supervisor understands. Doing without it costs time and nothing else: what is not found here
// is learnt again, and errors of the cache are not reported. FORMAT.md, "Cache".
//
// A file is identified by its version, and only if that is sure to change with the file's bytes (stays() in
// file_cache.cc). A hash of four of its pages, among them the first with the build-id, protects against device numbers
// that mean something else in another container. What remains is an overlayfs over tmpfs, and root writing into a
// system library through a mapping.
//
// Only what was synced is kept, when a recording has ended well; a killed one leaves nothing. An entry of another build
// of redrive, a damaged entry, and a copy with another inode, size or time count as absent and are replaced. Once a
// week, all of a copy is verified. Any number of recordings may use the directory at once, without locks: everything is
// written to another name and renamed, and the last one wins.
//
// A trace shares the copy's blocks, by a clone (FICLONE) where the file system supports it, otherwise by a hard link.
// One damaged copy then damages all traces that have links to it; their checksums report it at a replay or check. The
// alternative is to write 93 MB for each Python. Copies are read-only, and a replay maps them privately. On another
// file system, files are copied as without a cache, and only the facts are used.
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

// What is known of a file. The facts are opaque here, and empty if there are none.
struct FileFacts {
  std::string content;  // the name of its copies
  Bytes patch_plans;
  Bytes trap_sites;
};

// An entry as it is stored in the cache.
struct CacheEntry {
  std::string build;    // of the redrive that learnt it
  FileVersion version;  // of the file
  uint64_t filesystem = 0;
  std::string samples;  // hash of some of its bytes
  FileFacts facts;
  uint64_t copy_inode = 0;       // of the cache's copy, 0 if it has none
  int64_t copy_modified_ns = 0;  // ... when that copy was written
};
Bytes encode(const CacheEntry& entry);
std::optional<CacheEntry> decode_cache_entry(std::span<const uint8_t> payload);

class FileCache {
 public:
  static constexpr uint64_t kLimit = 2ull << 30;  // bytes of copies that no trace shares

  // $REDRIVE_CACHE_DIR, or else $XDG_CACHE_HOME/redrive, or else ~/.cache/redrive; empty if none of these is set.
  static std::string home();
  // Null if the directory cannot be made, belongs to another user, or can be written to by others.
  static std::unique_ptr<FileCache> open(const std::string& directory, uint64_t limit = kLimit);
  // The same, as another build of redrive would see the directory.
  static std::unique_ptr<FileCache> open(const std::string& directory, uint64_t limit, std::string build);

  // What is known of this version of the file at `path`, for the caller to read and extend; null if nothing of it may
  // be kept.
  FileFacts* of(const std::string& path, const FileVersion& version);
  enum class Put : uint8_t {
    nothing,  // the cache has no copy, or is on another file system
    links,    // to files that are on disk
    clones,   // new files, which are not synced
  };
  // Makes `path` a copy of these contents that shares the cache's bytes on disk, with its sums beside it.
  Put put_copy(const FileFacts& facts, const std::string& path);
  // Stores what was learnt since open(), and those of the copies below `directory` that are new; these must have been
  // synced.
  void keep(const std::string& directory);

 private:
  struct Known {
    CacheEntry entry;
    Bytes stored;  // as it was found in the cache
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
  std::string base_;  // its path, even if it is renamed
  uint64_t limit_;
  std::string build_;
  bool clones_ = true;  // until the file system refuses to
  bool shares_ = true;  // until a trace is found to be on another file system
  std::map<FileVersion, std::optional<Known>> files_;
};

}  // namespace redrive
