// All file I/O of logstore. A Storage is the operating system's files or, in tests, a MemoryStorage (memory_storage.h),
// which can make any call fail or lose what was not synced. It is not a general file library: files here grow at the
// end or are published whole.
//
// Errors name the file: "cannot write DIR/events/1.seg: No space left on device".
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"

namespace redrive {

class File {
 public:
  virtual ~File() = default;
  // Appends all of `data`. After an error, an unknown part of it is in the file.
  virtual Result<void> append(std::span<const uint8_t> data) = 0;
  // Returns how many bytes were read, which is fewer than asked for only at the end of the file. Thread-safe.
  virtual Result<size_t> read(uint64_t offset, std::span<uint8_t> to) const = 0;
  virtual Result<void> truncate(uint64_t size) = 0;  // a larger size adds zeros, as a hole where there can be one
  virtual uint64_t size() const = 0;
  // The first byte that may not be in a hole, at `offset` or after it. Thread-safe.
  virtual uint64_t next_data(uint64_t offset) const { return offset; }
};

class Storage {
 public:
  virtual ~Storage() = default;
  virtual Result<std::unique_ptr<File>> create(const std::string& path) = 0;     // an existing file is emptied
  virtual Result<std::unique_ptr<File>> append_to(const std::string& path) = 0;  // an existing file
  virtual Result<std::unique_ptr<File>> open(const std::string& path) = 0;       // to read
  virtual bool exists(const std::string& path) = 0;
  virtual Result<void> make_directory(const std::string& path) = 0;  // already_exists() if there is something
  virtual Result<void> link(const std::string& from, const std::string& to) = 0;    // another name of a file
  virtual Result<void> rename(const std::string& from, const std::string& to) = 0;  // a file or a directory
  virtual Result<void> remove(const std::string& path) = 0;                         // a file or an empty directory
  virtual Result<std::vector<std::string>> list(const std::string& directory) = 0;  // names of its files, sorted
  virtual Result<std::vector<std::string>> list_directories(const std::string& directory) = 0;  // the same
  // When this returns, the contents of the files survive a power failure; of a directory, its entries do. Thread-safe.
  virtual Result<void> sync(const std::vector<std::string>& paths) = 0;
  // Marks a directory as being written to, as long as the returned Fd and this process exist. Others ask with locked().
  // On file systems without locks this has no effect.
  virtual Fd lock(const std::string& directory) = 0;
  virtual bool locked(const std::string& directory) = 0;
  // Whether other libraries (SQLite) can open the paths themselves.
  virtual bool has_real_paths() const = 0;
};

// The operating system's files.
Storage& disk();

Error already_exists(const std::string& path);

// As of a File: of what is open here.
uint64_t next_data(int fd, uint64_t offset);

// Copies the contents of a file; holes stay holes.
Result<void> copy_file(Storage& storage, const std::string& from, const std::string& to);

// Removes a directory with everything in it.
Result<void> remove_tree(Storage& storage, const std::string& directory);

}  // namespace redrive
