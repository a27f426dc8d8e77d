// When the events of a block happened: stamps for runs of events, since one for each would take more space than many
// events. FORMAT.md, "Times".
//
// A run is a number of consecutive events that all happened between the same two times. TimesWriter makes runs as long
// as these times are close together, and never says more than it was told: each event happened in its run's time.
// TimesReader says where in it the event probably was, as if the events of a run were evenly spread.
#pragma once

#include <span>

#include "base/bytes.h"
#include "logstore/event.h"

namespace redrive {

class TimesWriter {
 public:
  // The next event's. Events happen in their order, so it is not before the time of the event before.
  void add(const EventTime& time);
  size_t size() const { return out_.size(); }  // of what is complete
  Bytes block() const;
  void clear();

 private:
  struct Run {
    uint64_t from_ns = 0, to_ns = 0;
    uint64_t events = 0;
  };
  void end_run();
  static uint64_t write(const Run& run, uint64_t before, Encoder& out);

  Encoder out_;
  Run run_;
  uint64_t since_ns_ = 0;  // no later event was before this
  uint64_t before_ = 0;    // where the last complete run began, in the unit of stamps
};

// Trusts nothing. The bytes must outlive it.
class TimesReader {
 public:
  explicit TimesReader(std::span<const uint8_t> block = {}) : in_(block) {}
  EventTime next();
  bool ok() const { return in_.ok(); }
  bool at_end() const { return in_.at_end() && at_ == events_; }

 private:
  Decoder in_;
  uint64_t from_ns_ = 0, to_ns_ = 0;
  uint64_t events_ = 0, at_ = 0;  // of the run: how many, and how many were read
  uint64_t before_ = 0;
  uint64_t last_ns_ = 0;  // the last guess: later events are not before it
};

}  // namespace redrive
