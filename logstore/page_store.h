// The pages of all images of a trace, each content once. The id of a page is its ordinal in the file; zero pages are
// not stored.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "logstore/record_file.h"
#include "logstore/trace.h"

namespace redrive {

inline constexpr uint32_t kPagesPerRecord = 64;

// Finds the id of a page by its content hash, among the pages that were asked for most recently, so that a long
// recording does not need more and more memory. A forgotten page is stored again.
class PageIndex {
 public:
  static constexpr size_t kLeast = 1 << 14, kMost = 1 << 19;

  // Remembers at least the last `generation` different pages, and fewer than twice as many.
  explicit PageIndex(size_t generation = kLeast) : generation_(generation) {}
  // Changes that number from now on, within these limits.
  void remember(size_t generation) { generation_ = std::clamp(generation, kLeast, kMost); }
  // The id of the page with this hash. If it is unknown, remembers and returns `fresh_id`.
  uint64_t find_or_add(uint64_t low, uint64_t high, uint64_t fresh_id);

 private:
  // Uses open addressing, because there are hundreds of thousands of pages.
  struct Table {
    struct Slot {
      uint64_t low = 0;
      uint64_t high = 0;
      uint64_t id_plus_one = 0;  // 0: free
    };
    std::vector<Slot> slots = std::vector<Slot>(1 << 10);  // their number is a power of two
    size_t used = 0;

    Slot& slot_of(uint64_t low, uint64_t high);
    void add(const Slot& slot);
  };
  size_t generation_;
  Table young_;
  Table old_;
};

class PageStoreWriter {
 public:
  PageStoreWriter(Storage& storage, std::string path);
  // Continues a store that has so many bytes and pages, about which nothing is remembered.
  Result<void> resume(uint64_t size, uint64_t pages);
  // Stores a page that is not zero, unless it is stored already. Returns its id.
  Result<uint64_t> add(const uint8_t* page);
  // Expects that so many different pages may soon be added again.
  void expect(size_t pages) { index_.remember(pages); }
  // Writes what is buffered, possibly as a short record.
  Result<void> write();
  uint64_t pages() const { return next_id_; }
  uint64_t bytes() const { return writer_.written(); }
  bool exists() const { return writer_.exists(); }
  const std::string& path() const { return writer_.path(); }

 private:
  void end_record();
  RecordWriter writer_;
  Compressor compressor_;
  PageIndex index_;
  Bytes record_;
  uint64_t next_id_ = 0;
};

// Reads pages. Thread-safe.
class PageStore {
 public:
  explicit PageStore(std::unique_ptr<RecordParts> records) : records_(std::move(records)) {}
  Result<void> read(std::vector<Image::Page> pages, const VisitPages& visit) const;  // see Trace::read_pages
  const RecordFile& file() const { return records_->file(); }

 private:
  std::unique_ptr<RecordParts> records_;
};

}  // namespace redrive
