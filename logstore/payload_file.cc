#include "logstore/payload_file.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace redrive {
namespace {

constexpr int kPayloadLevel = 1;
constexpr size_t kMostKept = 8;             // records
constexpr uint64_t kLargestKept = 1 << 20;  // bytes of a record with which others are kept

}  // namespace

void PayloadFileWriter::add(EventIndex event, std::span<const uint8_t> payload) {
  places_.u(event);
  places_.u(payload.size());
  bytes_.insert(bytes_.end(), payload.begin(), payload.end());
  ++items_;
}

Result<void> PayloadFileWriter::write(Compressor& compressor) {
  if (items_ == 0) return {};
  writer_.add(RecordType::payload_places, places_.data(), items_, &compressor);
  writer_.add(RecordType::payload_bytes, bytes_, items_, &compressor);
  places_.clear();
  bytes_.clear();
  items_ = 0;
  return writer_.write();
}

PayloadWriter::PayloadWriter(Storage& storage, TraceFiles files)
    : storage_(storage), files_(std::move(files)), compressor_(kPayloadLevel) {}

PayloadFileWriter& PayloadWriter::of(UnitId unit) {
  return units_.try_emplace(unit, storage_, files_.payloads(unit), unit).first->second;
}

Result<void> PayloadWriter::resume(const PayloadsPublished& published) {
  return of(published.unit).resume(published.size, published.items);
}

void PayloadWriter::add(EventRef receiver, std::span<const uint8_t> payload) {
  PayloadFileWriter& writer = of(receiver.unit);
  const size_t before = writer.buffered();
  writer.add(receiver.event, payload);
  buffered_ += writer.buffered() - before;
}

Result<void> PayloadWriter::write() {
  if (buffered_ == 0) return {};
  if (!storage_.exists(files_.payloads())) TRY(storage_.make_directory(files_.payloads()));
  buffered_ = 0;
  for (auto& [unit, writer] : units_) {
    if (writer.buffered() == 0) continue;
    TRY(writer.write(compressor_));
    writer.close();
    written_[unit] = {unit, writer.written(), writer.items()};
  }
  return {};
}

std::vector<PayloadsPublished> PayloadWriter::take_written() {
  std::vector<PayloadsPublished> taken;
  for (const auto& [unit, published] : std::exchange(written_, {})) taken.push_back(published);
  return taken;
}

Result<std::unique_ptr<PayloadFile>> PayloadFile::open(Storage& storage, const std::string& path, UnitId unit,
                                                       uint64_t size) {
  ASSIGN_OR_RETURN(auto file, RecordFile::open(storage, path, FileKind::payloads, unit, 0, Tail::ignored, size));
  if (file->damaged()) return *file->damaged();
  std::unique_ptr<PayloadFile> opened(new PayloadFile(std::move(file)));
  TRY(opened->list());
  return opened;
}

Result<void> PayloadFile::list() {
  constexpr size_t kMany = 1 << 16;
  Unpacker unpacker;
  size_t kept = 0;
  const auto& records = file_->records();
  for (auto record = records.begin(); record != records.end(); ++record) {
    if (places_.size() > 2 * kept + kMany) {  // packed, a few bytes can name an event a million times
      drop_replaced();
      kept = places_.size();
    }
    if (record->type == RecordType::payloads) {
      TRY(list_old(*record, unpacker));
      continue;
    }
    const auto bytes = std::next(record);
    if (record->type != RecordType::payload_places || bytes == records.end() ||
        bytes->type != RecordType::payload_bytes || bytes->items != record->items) {
      return damage(file_->path(), record->offset, "not a record of payloads");
    }
    TRY(list(*record, *bytes, unpacker));
    record = bytes;
  }
  drop_replaced();
  return {};
}

// Sorts the places, and keeps the last of each event.
void PayloadFile::drop_replaced() {
  std::ranges::stable_sort(places_, {}, &Place::event);
  const auto same = [](const Place& a, const Place& b) { return a.event == b.event; };
  places_.erase(places_.begin(), std::unique(places_.rbegin(), places_.rend(), same).base());
}

// Only what is needed of the bytes is unpacked, later: there may be many more of them than a replay needs.
Result<void> PayloadFile::list(const RecordHeader& places, const RecordHeader& bytes, Unpacker& unpacker) {
  ASSIGN_OR_RETURN(const auto listed, file_->payload(places, unpacker));
  Decoder in(listed);
  uint64_t offset = 0;
  for (uint32_t i = 0; i < places.items && in.ok(); ++i) {
    const EventIndex event = in.u();
    const uint64_t length = in.u();
    if (length > bytes.raw_length - offset) return damage(file_->path(), bytes.offset, "payloads are missing");
    places_.push_back({event, &bytes, offset, length});
    offset += length;
  }
  if (!in.ok() || !in.at_end()) return damage(file_->path(), places.offset, "payloads cannot be decoded");
  return {};
}

Result<void> PayloadFile::list_old(const RecordHeader& record, Unpacker& unpacker) {
  ASSIGN_OR_RETURN(const auto payload, file_->payload(record, unpacker));
  Decoder in(payload);
  for (uint32_t i = 0; i < record.items && in.ok(); ++i) {
    const EventIndex event = in.u();
    const auto bytes = in.bytes();
    places_.push_back({event, &record, in.position() - bytes.size(), bytes.size()});
  }
  if (!in.ok() || !in.at_end()) return damage(file_->path(), record.offset, "payloads cannot be decoded");
  return {};
}

Result<PayloadFile::Contents> PayloadFile::contents_of(const RecordHeader& record) const {
  const Lock lock(mutex_);
  auto found = std::ranges::find(read_, &record, [](const auto& each) { return each.first; });
  if (found == read_.end()) {
    ASSIGN_OR_RETURN(Bytes payload, file_->payload(record));
    const uint64_t size = payload.size();
    if (size > kLargestKept) read_.clear();
    if (read_.size() == kMostKept) read_.pop_back();
    found = read_.emplace(read_.end(), &record, std::make_shared<const Bytes>(std::move(payload)));
  }
  std::rotate(read_.begin(), found, std::next(found));
  return read_.front().second;
}

Result<bool> PayloadFile::fill(EventIndex index, Event& event) const {
  const auto after = std::ranges::upper_bound(places_, index, {}, &Place::event);
  if (after == places_.begin() || std::prev(after)->event != index || !event.receive) return false;
  const Place& place = *std::prev(after);
  const RecordHeader* const record = place.record;
  ASSIGN_OR_RETURN(const Contents contents, contents_of(*record));
  auto rest = std::span(*contents).subspan(place.offset, place.length);
  for (auto& write : event.writes) {
    if (!write.from_message()) continue;
    if (write.length > rest.size()) return damage(file_->path(), record->offset, "a payload is too short");
    write.data.assign(rest.begin(), rest.begin() + static_cast<int64_t>(write.length));
    write.kind = MemoryWrite::Kind::data;
    rest = rest.subspan(write.length);
  }
  event.receive->logged = true;
  return true;
}

}  // namespace redrive
