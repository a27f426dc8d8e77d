#include "logstore/event_block.h"

#include "base/assert.h"

namespace redrive {

// ---- Writing

void EventBlockWriter::add(const Event& event) {
  encode(event, rows_);
  times_.add(event.time);
}

Bytes EventBlockWriter::block() const {
  Encoder out;
  out.bytes(times_.block());
  const Bytes rows = rows_.block();
  out.raw(rows.data(), rows.size());
  return out.take();
}

void EventBlockWriter::clear() {
  rows_.clear();
  times_.clear();
}

// ---- Reading

bool EventBlock::open(const RecordHeader& record, std::span<const uint8_t> payload) {
  items_ = 0;
  type_ = record.type;
  if (!has_times() && type_ != RecordType::event_rows && type_ != RecordType::events) return false;
  payload_.assign(payload.begin(), payload.end());
  first_ = record.first_item;
  items_ = record.items;
  rewind();
  return true;
}

void EventBlock::rewind() {
  next_ = first_;
  decoder_ = Decoder(payload_);
  times_ = TimesReader(has_times() ? decoder_.bytes() : std::span<const uint8_t>());
  if (has_rows()) rows_.read(decoder_.take(decoder_.left()));
}

bool EventBlock::next(Event& event) {
  ASSERT(!at_end());
  if (!(has_rows() ? decode(rows_, event) : decode(decoder_, event))) return false;
  event.time = has_times() ? times_.next() : EventTime{};
  if (!times_.ok() || !decoder_.ok()) return false;
  ++next_;
  return !at_end() || (decoder_.at_end() && (!has_rows() || rows_.at_end()) && (!has_times() || times_.at_end()));
}

}  // namespace redrive
