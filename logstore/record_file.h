// Files of records: the framing of every file of a trace except the plain ones (catalog, file copies). FORMAT.md,
// "Records".
//
// RecordWriter appends; RecordFile reads. A record holds one or more items (events, pages, journal entries), which are
// numbered through the file, so that an item is found from the headers alone. RecordFile never trusts a length: it
// allocates no more than the file holds, or kMaxPacked for compressed data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/result.h"
#include "logstore/storage.h"

typedef struct ZSTD_CCtx_s ZSTD_CCtx;
typedef struct ZSTD_DCtx_s ZSTD_DCtx;

namespace redrive {

inline constexpr uint32_t kFormatVersion = 18;
inline constexpr size_t kPreambleSize = 24;
inline constexpr size_t kRecordHeaderSize = 40;
inline constexpr uint64_t kMaxPacked = 16 << 20;  // larger payloads are stored as they are

enum class FileKind : uint8_t {
  journal = 'J',
  events = 'E',
  pages = 'P',
  image = 'I',
  sums = 'S',
  payloads = 'L',
  facts = 'C',
  certificate = 'B'
};

enum class RecordType : uint8_t {
  settings = 1,
  unit = 2,
  interval = 3,
  interval_end = 4,
  channel = 5,
  refusal = 6,
  unsure = 7,
  file = 8,
  image_published = 9,
  recording_end = 10,
  interception = 11,
  stopping_site = 12,
  payloads_published = 13,
  short_unit = 14,
  join = 15,
  events = 16,  // up to format 8
  pages = 17,
  image_header = 18,
  image_pages = 19,
  block_sums = 20,
  payloads = 21,  // up to format 12
  file_facts = 22,
  image_written = 23,
  certificate = 24,
  event_rows = 25,  // formats 9 and 10
  wall_clock = 26,
  timed_event_rows = 27,
  payload_places = 28,
  payload_bytes = 29,
};

// Damage at an offset in a file: "FILE: offset N: WHAT", Status::damaged.
Error damage(const std::string& file, uint64_t offset, const std::string& what);
// The error for a file that is not there: damage, unless somebody has removed the trace, or a recorder the volume, in
// which it was.
Error missing(Storage& storage, const std::string& file);

// A zstd context that one thread uses again and again.
class Compressor {
 public:
  explicit Compressor(int level);
  // Returns the packed size, or 0 if `to` is too small for it.
  size_t pack(std::span<const uint8_t> from, std::span<uint8_t> to);

 private:
  std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context_;
};

class RecordWriter {
 public:
  // Nothing is created before the first write(). `id` and `sub_id` say which file of its kind it is, for example the
  // unit.
  RecordWriter(Storage& storage, std::string path, FileKind kind, uint32_t id = 0, uint32_t sub_id = 0);

  // Continues a file that has `written` bytes of `items` items. Anything after these bytes is cut off. Call it before
  // the first add().
  Result<void> resume(uint64_t written, uint64_t items);
  // Buffers a record of `items` items. If there is a `compressor`, packs the record if that makes it smaller.
  void add(RecordType type, std::span<const uint8_t> payload, uint32_t items = 1, Compressor* compressor = nullptr);
  // Writes what was added, in one append. After an error, the file is cut back to its last whole record; if that fails,
  // nothing more is written.
  Result<void> write();

  const std::string& path() const { return path_; }
  bool exists() const { return written_ > 0; }
  bool is_open() const { return file_ != nullptr; }
  uint64_t written() const { return written_; }       // bytes
  size_t buffered() const { return buffer_.size(); }  // bytes
  uint64_t items() const { return next_item_; }       // added so far
  void close() { file_.reset(); }                     // the next write() opens it again

 private:
  Storage& storage_;
  std::string path_;
  std::unique_ptr<File> file_;
  Bytes buffer_;
  uint64_t written_ = 0;
  uint64_t next_item_ = 0;
  std::optional<Error> torn_;
};

struct RecordHeader {
  uint64_t offset = 0;  // of the header, in the file
  uint32_t length = 0;  // of the payload, in the file
  RecordType type{};
  bool packed = false;
  uint64_t first_item = 0;
  uint32_t items = 0;
  uint32_t raw_length = 0;  // of the payload, unpacked
  uint64_t checksum = 0;    // of the payload, in the file
  uint64_t end() const { return offset + kRecordHeaderSize + length; }
};

// Buffers that are reused from one record to the next. For one thread.
class Unpacker {
 private:
  friend class RecordFile;
  struct Free {
    void operator()(ZSTD_DCtx* context) const;
  };
  // Memory whose contents do not matter. What is not used of it costs nothing.
  class Buffer {
   public:
    std::span<uint8_t> first(size_t size);

   private:
    std::unique_ptr<uint8_t[]> data_;
    size_t size_ = 0;
  };
  std::unique_ptr<ZSTD_DCtx, Free> context_;  // exists from the first packed record on
  Buffer stored_, raw_;
};

// How a file may end.
enum class Tail : uint8_t {
  torn,     // its writer may have been killed: an incomplete last record is cut, and unsynced payloads
            // are verified at open
  whole,    // it was published or finished: anything missing is damage
  ignored,  // whole up to the given size; what its writer added after that is ignored
};

// A place in a file where a record begins, or the last one ends.
struct RecordPlace {
  uint64_t offset = kPreambleSize;
  uint64_t item = 0;  // the number of the first one from there on
};

class RecordFile {
 public:
  // Reads all headers. Fails only if the file cannot be read or its preamble is bad; a bad record ends the list
  // (damaged()). `size`: the size that the file must have, if known. With Tail::ignored, it must have at least this
  // size; with Tail::torn, this much was synced.
  static Result<std::unique_ptr<RecordFile>> open(Storage& storage, const std::string& path, FileKind kind, uint32_t id,
                                                  uint32_t sub_id, Tail tail,
                                                  std::optional<uint64_t> size = std::nullopt);

  // Reads the preamble only: records() is empty. For files that may be too long to read all headers.
  static Result<std::unique_ptr<RecordFile>> open_unread(Storage& storage, const std::string& path, FileKind kind,
                                                         uint32_t id, uint32_t sub_id);
  // The headers of the records from one place to the other. Status::damaged if these do not lead there.
  Result<std::vector<RecordHeader>> headers(RecordPlace from, RecordPlace to) const;

  const std::string& path() const { return path_; }
  const std::vector<RecordHeader>& records() const { return records_; }
  const std::optional<Error>& damaged() const { return damaged_; }  // why records() stops before the end
  uint64_t items() const { return records_.empty() ? 0 : records_.back().first_item + records_.back().items; }
  uint64_t readable_size() const { return records_.empty() ? kPreambleSize : records_.back().end(); }
  uint64_t size_on_disk() const { return file_->size(); }
  // The record that holds an item; null if none does.
  const RecordHeader* find(uint64_t item) const;
  // The verified, unpacked payload of a record. Thread-safe.
  Result<Bytes> payload(const RecordHeader& record) const;
  // The same, valid until `unpacker` is used again.
  Result<std::span<const uint8_t>> payload(const RecordHeader& record, Unpacker& unpacker) const;
  // Visits all payloads in order, verified and unpacked; each is valid during its visit. The file is read in large
  // pieces.
  Result<void> for_each_payload(
      const std::function<Result<void>(const RecordHeader&, std::span<const uint8_t>)>& visit) const;
  // Reports every payload that does not match its checksum or does not unpack.
  std::vector<Error> check() const;

 private:
  RecordFile(std::unique_ptr<File> file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  Result<void> read_preamble(FileKind kind, uint32_t id, uint32_t sub_id) const;
  Result<void> scan(Tail tail, uint64_t size, uint64_t synced);
  Result<bool> never_reached_disk(uint64_t offset, uint64_t end) const;
  Result<void> verify(const RecordHeader& record, std::span<const uint8_t> stored) const;
  Result<void> read_stored(const RecordHeader& record, std::span<uint8_t> to) const;
  Result<void> unpack(const RecordHeader& record, std::span<const uint8_t> stored, std::span<uint8_t> to,
                      Unpacker& unpacker) const;
  Result<std::span<const uint8_t>> unpacked(const RecordHeader& record, std::span<const uint8_t> stored,
                                            Unpacker& unpacker) const;

  std::unique_ptr<File> file_;
  std::string path_;
  std::vector<RecordHeader> records_;
  std::optional<Error> damaged_;
};

// A file of whose records only some are needed, perhaps few of very many: headers are read from one known place to the
// next, when a record there is needed. Thread-safe.
class RecordParts {
 public:
  // All headers were read.
  explicit RecordParts(std::unique_ptr<RecordFile> file) : file_(std::move(file)) {}
  // None was read. The first place is where the first record begins, the last one where the last record that counts
  // ends; offsets and items increase.
  RecordParts(std::unique_ptr<RecordFile> file, const std::vector<RecordPlace>& places);
  // The record that holds an item, and those that follow it, up to the next place. None if no record holds it.
  Result<std::span<const RecordHeader>> from(uint64_t item) const;
  const RecordFile& file() const { return *file_; }

 private:
  struct Part {
    RecordPlace begin, end;
    std::vector<RecordHeader> records;  // none: not read
  };

  std::unique_ptr<RecordFile> file_;
  mutable Mutex mutex_;
  // Records that were read do not move.
  mutable std::vector<Part> parts_ GUARDED_BY(mutex_);
};

}  // namespace redrive
