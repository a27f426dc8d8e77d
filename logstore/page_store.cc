#include "logstore/page_store.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "logstore/hash.h"

namespace redrive {
namespace {

// Images are packed beside a running recording. Against level 1, on a program's text and data: a tenth less time for a
// tenth more bytes.
constexpr int kPageLevel = -1;
constexpr size_t kWriteSize = 1 << 20;
constexpr size_t kCachedRecords = 64;  // 16 MiB

}  // namespace

bool is_zero_page(const uint8_t* page) {
  // A page is zero if its first 8 bytes are and each byte equals the one 8 before it.
  uint64_t first;
  std::memcpy(&first, page, sizeof first);
  return first == 0 && std::memcmp(page, page + sizeof first, kStoredPage - sizeof first) == 0;
}

PageIndex::Slot& PageIndex::slot_of(uint64_t low, uint64_t high) {
  size_t at = low & (slots_.size() - 1);
  while (slots_[at].id_plus_one && (slots_[at].low != low || slots_[at].high != high))
    at = (at + 1) & (slots_.size() - 1);
  return slots_[at];
}

void PageIndex::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const auto& slot : old) {
    if (slot.id_plus_one) slot_of(slot.low, slot.high) = slot;
  }
}

uint64_t PageIndex::find_or_add(uint64_t low, uint64_t high, uint64_t fresh_id) {
  if (used_ * 4 >= slots_.size() * 3) grow();
  Slot& slot = slot_of(low, high);
  if (!slot.id_plus_one) {
    slot = Slot{low, high, fresh_id + 1};
    used_++;
  }
  return slot.id_plus_one - 1;
}

PageStoreWriter::PageStoreWriter(Storage& storage, std::string path)
    : writer_(storage, std::move(path), FileKind::pages), compressor_(kPageLevel) {
  record_.reserve(kPagesPerRecord * kStoredPage);
}

Result<uint64_t> PageStoreWriter::add(const uint8_t* page) {
  const XXH128_hash_t hash = XXH3_128bits(page, kStoredPage);
  const uint64_t id = index_.find_or_add(hash.low64, hash.high64, next_id_);
  if (id != next_id_) return id;
  next_id_++;
  record_.insert(record_.end(), page, page + kStoredPage);
  if (record_.size() == kPagesPerRecord * kStoredPage) end_record();
  if (writer_.buffered() >= kWriteSize) TRY(writer_.write());
  return id;
}

void PageStoreWriter::end_record() {
  if (record_.empty()) return;
  writer_.add(RecordType::pages, record_, static_cast<uint32_t>(record_.size() / kStoredPage), &compressor_);
  record_.clear();
}

Result<void> PageStoreWriter::write() {
  end_record();
  CHECK(writer_.items() == next_id_);
  return writer_.write();
}

PageStore::Unpacked PageStore::cached(uint64_t first_page) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_first_page_.find(first_page);
  if (it == by_first_page_.end()) return nullptr;
  newest_first_.splice(newest_first_.begin(), newest_first_, it->second);
  return it->second->pages;
}

void PageStore::remember(uint64_t first_page, Unpacked pages) const {
  const std::lock_guard lock(mutex_);
  if (by_first_page_.contains(first_page)) return;  // another thread was faster
  newest_first_.push_front({first_page, std::move(pages)});
  by_first_page_[first_page] = newest_first_.begin();
  if (newest_first_.size() > kCachedRecords) {
    by_first_page_.erase(newest_first_.back().first_page);
    newest_first_.pop_back();
  }
}

Result<void> PageStore::read(uint64_t page_id, uint8_t (&page)[kStoredPage]) const {
  const RecordHeader* record = file_->find(page_id);
  if (!record) {
    if (file_->damaged()) return *file_->damaged();
    return damage(file_->path(), file_->readable_size(), "page " + std::to_string(page_id) + " is missing");
  }
  Unpacked pages = cached(record->first_item);
  if (!pages) {
    ASSIGN_OR_RETURN(Bytes payload, file_->payload(*record));
    if (record->type != RecordType::pages || payload.size() != record->items * kStoredPage) {
      return damage(file_->path(), record->offset, "not a record of pages");
    }
    pages = std::make_shared<const Bytes>(std::move(payload));
    remember(record->first_item, pages);
  }
  std::memcpy(page, pages->data() + (page_id - record->first_item) * kStoredPage, kStoredPage);
  return {};
}

}  // namespace redrive
