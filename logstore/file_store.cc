#include "logstore/file_store.h"

#include <fcntl.h>

#include <algorithm>

#include "base/fd.h"

namespace redrive {
namespace {

// Fills the block unless the file ends. Returns the number of bytes read, or -1.
ssize_t read_block(int fd, uint64_t offset, Bytes& block) {
  size_t done = 0;
  while (done < block.size()) {
    const ssize_t n = ::pread(fd, block.data() + done, block.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

bool is_content_name(const std::string& name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// The bytes are in the processor's cache when they are hashed, and are written from there. copy_file_range(2) would
// require a second reading for the hash, and could not guarantee that both readings saw the same bytes. The blocks of a
// hole are hashed as the zeros that they are (lseek(2), SEEK_DATA), and neither read, written nor, later, verified.
Result<FileStoreWriter::Copied> FileStoreWriter::copy(int source, const std::string& open_path, const std::string& to,
                                                      bool& storage_failed) {
  storage_failed = true;
  ASSIGN_OR_RETURN(const auto file, storage_.create(to));
  Bytes block(kSumBlock);
  BlockSummer summer;
  uint64_t written = 0;
  while (true) {
    const uint64_t at = summer.sums().size;
    if (const uint64_t blocks = (next_data(source, at) - at) / kSumBlock; blocks > 0) {
      summer.add_zeros(blocks);
      TRY(file->truncate(summer.sums().size));
      continue;
    }
    const ssize_t n = read_block(source, at, block);
    if (n < 0) {
      storage_failed = false;
      return errno_error("cannot read " + open_path);
    }
    if (n > 0) {
      const auto data = std::span(block).first(static_cast<size_t>(n));
      summer.add(data);
      TRY(file->append(data));
      written += data.size();
    }
    if (static_cast<size_t>(n) < block.size()) break;
  }
  storage_failed = false;
  return Copied{summer.content_name(), summer.sums(), written};
}

Result<std::string> FileStoreWriter::store(int source, const std::string& open_path, uint64_t& size, uint64_t& written,
                                           bool& storage_failed) {
  const std::string temporary = directory_ + "/copy.tmp";
  auto copied = copy(source, open_path, temporary, storage_failed);
  if (!copied) {
    (void)static_cast<bool>(storage_.remove(temporary));
    return copied.error();
  }
  size = copied->sums.size;
  if (contents_.contains(copied->name)) {
    (void)static_cast<bool>(storage_.remove(temporary));
    return copied->name;
  }
  const std::string path = directory_ + "/" + copied->name;
  storage_failed = true;
  TRY(storage_.rename(temporary, path));
  TRY(write_sums(storage_, path, copied->sums));
  storage_failed = false;
  contents_.insert(copied->name);
  unsynced_.insert(unsynced_.end(), {path, sums_path(path), directory_});
  written += copied->written + kPreambleSize + kRecordHeaderSize + copied->sums.blocks.size() * sizeof(uint64_t);
  return copied->name;
}

// Whether the content is here, if necessary by sharing the cache's copy now.
bool FileStoreWriter::share(const FileFacts& facts) {
  if (facts.content.empty() || contents_.contains(facts.content)) return !facts.content.empty();
  const std::string path = directory_ + "/" + facts.content;
  const FileCache::Put put = cache_->put_copy(facts, path);
  if (put == FileCache::Put::nothing) return false;
  contents_.insert(facts.content);
  unsynced_.push_back(directory_);
  if (put == FileCache::Put::clones) unsynced_.insert(unsynced_.end(), {path, sums_path(path)});
  return true;
}

Result<void> FileStoreWriter::remove(const FileRecord& record) {
  by_path_.erase({record.path, record.copy});
  const bool needed = std::any_of(by_path_.begin(), by_path_.end(),
                                  [&](const auto& known) { return known.first.second == record.copy; });
  if (needed) return {};
  contents_.erase(record.copy);
  const std::string path = directory_ + "/" + record.copy;
  TRY(storage_.remove(path));
  return storage_.remove(sums_path(path));
}

Result<FileStoreWriter::Added> FileStoreWriter::add(const std::string& open_path, const std::string& path,
                                                    bool identified, bool& storage_failed) {
  storage_failed = false;
  const Fd source(::open(open_path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat st;
  if (!source || ::fstat(source.get(), &st) != 0) return errno_error("cannot read " + open_path);
  if (!S_ISREG(st.st_mode)) return Error{"cannot copy " + open_path + ": not a regular file"};
  const FileVersion version = version_of(st);
  Added added;
  FileFacts* const facts = cache_ && identified ? cache_->of(open_path, version) : nullptr;
  std::string content;
  uint64_t size = version.size;
  if (facts && share(*facts)) {
    content = facts->content;
  } else {
    ASSIGN_OR_RETURN(content, store(source.get(), open_path, size, added.written, storage_failed));
    if (facts && size == version.size) facts->content = content;
  }
  const auto [it, fresh] = by_path_.try_emplace({path, content});
  if (fresh) it->second = FileRecord{next_id_++, path, content, size};
  added.record = it->second;
  added.fresh = fresh;
  return added;
}

}  // namespace redrive
