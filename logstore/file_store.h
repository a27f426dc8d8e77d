// files/: copies of the files that programs mapped, named by content, each with its block sums beside it.
#pragma once

#include <map>
#include <set>

#include "base/file_version.h"
#include "logstore/block_sums.h"
#include "logstore/file_cache.h"
#include "logstore/trace.h"

namespace redrive {

class FileStoreWriter {
 public:
  // `cache`: null if there is none.
  FileStoreWriter(Storage& storage, std::string directory, FileCache* cache)
      : storage_(storage), directory_(std::move(directory)), cache_(cache) {}

  struct Added {
    FileRecord record;
    bool fresh = false;    // the record is new and must be written to the journal
    uint64_t written = 0;  // bytes
  };
  // Copies the file, unless its content is here already or the cache has a copy to share. `identified`: its version
  // identifies its content. After an error, `storage_failed` distinguishes a full disk from an unreadable source.
  Result<Added> add(const std::string& open_path, const std::string& path, bool identified, bool& storage_failed);
  // Removes the copy, unless another record has the same content. The record's number is not used again.
  Result<void> remove(const FileRecord& record);
  // The files copied since the previous call that are not synced yet, and the directory, if it has new names.
  std::vector<std::string> take_unsynced() { return std::exchange(unsynced_, {}); }

 private:
  struct Copied {
    std::string name;
    BlockSums sums;
    uint64_t written = 0;  // bytes: less than the size if there are holes
  };
  Result<Copied> copy(int source, const std::string& open_path, const std::string& to, bool& storage_failed);
  Result<std::string> store(int source, const std::string& open_path, uint64_t& size, uint64_t& written,
                            bool& storage_failed);

  bool share(const FileFacts& facts);

  Storage& storage_;
  std::string directory_;
  FileCache* cache_;
  std::map<std::pair<std::string, std::string>, FileRecord> by_path_;  // path and content
  std::set<std::string> contents_;
  std::vector<std::string> unsynced_;
  uint64_t next_id_ = 1;
};

// Whether `name` can be the name of a copy, that is, 32 hexadecimal digits. This prevents a record from naming a file
// elsewhere.
bool is_content_name(const std::string& name);

}  // namespace redrive
