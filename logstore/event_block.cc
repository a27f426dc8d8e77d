#include "logstore/event_block.h"

#include "base/check.h"

namespace redrive {

bool EventBlock::open(const RecordHeader& record, std::span<const uint8_t> payload) {
  items_ = 0;
  if (record.type != RecordType::event_rows && record.type != RecordType::events) return false;
  rows_ = record.type == RecordType::event_rows;
  payload_.assign(payload.begin(), payload.end());
  first_ = record.first_item;
  items_ = record.items;
  rewind();
  return true;
}

void EventBlock::rewind() {
  next_ = first_;
  if (rows_) {
    reader_.read(payload_);
  } else {
    decoder_ = Decoder(payload_);
  }
}

bool EventBlock::next(Event& event) {
  CHECK(!at_end());
  if (!(rows_ ? decode(reader_, event) : decode(decoder_, event))) return false;
  ++next_;
  return !at_end() || (rows_ ? reader_.at_end() : decoder_.at_end());
}

}  // namespace redrive
