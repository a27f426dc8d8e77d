#include "logstore/payload_file.h"

#include <utility>

namespace redrive {
namespace {

constexpr int kPayloadLevel = 1;

}  // namespace

void PayloadFileWriter::add(EventIndex event, std::span<const uint8_t> payload) {
  pending_.u(event);
  pending_.bytes(payload);
  ++pending_items_;
}

Result<void> PayloadFileWriter::write(Compressor& compressor) {
  if (pending_items_ == 0) return {};
  writer_.add(RecordType::payloads, pending_.data(), std::exchange(pending_items_, 0), &compressor);
  pending_.clear();
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
  Unpacker unpacker;
  for (const auto& record : file_->records()) {
    if (record.type != RecordType::payloads) return damage(file_->path(), record.offset, "not a record of payloads");
    ASSIGN_OR_RETURN(const auto payload, file_->payload(record, unpacker));
    Decoder in(payload);
    for (uint32_t i = 0; i < record.items; ++i) {
      const EventIndex event = in.u();
      const auto bytes = in.bytes();
      if (!in.ok()) return damage(file_->path(), record.offset, "payloads cannot be decoded");
      places_[event] = {&record, in.position() - bytes.size(), bytes.size()};
    }
    if (!in.at_end()) return damage(file_->path(), record.offset, "payloads cannot be decoded");
  }
  return {};
}

Result<bool> PayloadFile::fill(EventIndex index, Event& event) const {
  const auto found = places_.find(index);
  if (found == places_.end() || !event.receive) return false;
  const auto [record, offset, length] = found->second;
  std::shared_ptr<const Bytes> contents;
  {
    const Lock lock(mutex_);
    if (last_ != record) {
      ASSIGN_OR_RETURN(Bytes payload, file_->payload(*record));
      contents_ = std::make_shared<const Bytes>(std::move(payload));
      last_ = record;
    }
    contents = contents_;
  }
  auto rest = std::span(*contents).subspan(offset, length);
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
