// The events of one record: written, and read from its first one on.
#pragma once

#include "logstore/event.h"
#include "logstore/event_times.h"
#include "logstore/record_file.h"
#include "logstore/rows.h"

namespace redrive {

// Makes the payload of a record of type RecordType::timed_event_rows.
class EventBlockWriter {
 public:
  void add(const Event& event);
  size_t size() const { return rows_.size() + times_.size(); }  // in bytes, roughly
  Bytes block() const;
  void clear();  // begins another block

 private:
  RowWriter rows_;
  TimesWriter times_;
};

class EventBlock {
 public:
  // Takes the events of a record of this file from now on. Its payload is copied. False if it holds no events.
  bool open(const RecordHeader& record, std::span<const uint8_t> payload);
  bool holds(const RecordHeader& record) const { return items_ > 0 && first_ == record.first_item; }
  // Begins again with the first event.
  void rewind();

  uint64_t next_item() const { return next_; }
  bool at_end() const { return next_ == first_ + items_; }
  // Reads the next event, of which there must be one. False if it cannot be decoded, or if it is the last one and bytes
  // remain.
  bool next(Event& event);

 private:
  bool has_rows() const { return type_ != RecordType::events; }
  bool has_times() const { return type_ == RecordType::timed_event_rows; }

  Bytes payload_;
  RecordType type_ = RecordType::timed_event_rows;
  RowReader rows_;
  TimesReader times_;
  Decoder decoder_;  // of a record that does not hold rows
  uint64_t first_ = 0, next_ = 0;
  uint32_t items_ = 0;
};

}  // namespace redrive
