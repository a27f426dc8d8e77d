// The event stream of one unit on its way into the trace.
//
// A syscall's entry is held back until its exit, so that both become one event unless another event of the unit comes
// between. The last complete event is held back too, so that a series of identical unsuccessful tests becomes one event
// with a count.
//
// Events are made in place, in memory that is used again and again.
#pragma once

#include <array>
#include <utility>

#include "base/check.h"
#include "logstore/trace.h"

namespace redrive {

class UnitLog {
 public:
  UnitLog(TraceWriter& writer, UnitId unit) : writer_(writer), unit_(unit) {}
  UnitLog(const UnitLog&) = delete;
  UnitLog& operator=(const UnitLog&) = delete;

  // The number that the next event gets, provided it does not continue a series.
  EventIndex next() const { return written_ + (complete_ ? 1 : 0) + (open_ ? 1 : 0); }

  // A syscall's entry, to be filled in.
  Event& open() {
    flush_open();
    open_ = blank();
    return *open_;
  }
  // The entry that is still open if it is this thread's: may be amended.
  Event* open_of(ThreadSerial thread) { return open_ && open_->thread == thread ? open_ : nullptr; }

  // The call whose entry is open did not happen after all.
  void cancel() { open_ = nullptr; }

  // Where result, writes and so on of a syscall's exit belong: its open entry, or an event of its own if another came
  // between. close() says that it is complete; `times`: as many calls that were the same, one after the other.
  Event& closing(ThreadSerial thread, int32_t number) {
    CHECK(!exit_);
    if (Event* entry = open_of(thread)) return *entry;
    exit_ = blank();
    exit_->kind = EventKind::exit;
    exit_->thread = thread;
    exit_->number = number;
    return *exit_;
  }
  // Memory for what an event writes, used before.
  Bytes spare() {
    if (spare_.empty()) return {};
    Bytes bytes = std::move(spare_.back());
    spare_.pop_back();
    return bytes;
  }
  // The number of the event from closing().
  EventIndex closing_index() const { return exit_ ? next() : next() - 1; }
  void close(bool test, uint64_t times = 1) {
    if (exit_) {
      flush();
      complete_ = std::exchange(exit_, nullptr);
      return;
    }
    CHECK(open_);
    if (test && complete_ && continues()) {
      complete_->repeat += times;
    } else {
      flush_complete();
      complete_ = open_;
      complete_->repeat = times;
    }
    open_ = nullptr;
  }

  void add(Event event) {
    flush();
    complete_ = blank();
    *complete_ = std::move(event);
  }

  void flush() {
    flush_complete();
    flush_open();
  }

 private:
  Event* blank() {
    for (Event& event : events_) {
      if (&event == complete_ || &event == open_ || &event == exit_) continue;
      event.clear();
      return &event;
    }
    CHECK(!"an event was not closed");
    return nullptr;
  }
  // Whether the open event is one more of the complete one's series.
  bool continues() {
    open_->repeat = complete_->repeat;
    const bool same = *open_ == *complete_;
    open_->repeat = 1;
    return same;
  }
  void flush_complete() {
    if (!complete_) return;
    write(*complete_);
    complete_ = nullptr;
  }
  void flush_open() {
    if (!open_) return;
    flush_complete();
    open_->kind = EventKind::entry;
    write(*open_);
    open_ = nullptr;
  }
  void write(Event& event) {
    if (!segment_) segment_ = &writer_.segment(unit_);
    writer_.append(*segment_, event);
    ++written_;
    for (auto& written : event.writes) {
      const size_t capacity = written.data.capacity();
      if (capacity && capacity <= kLargestSpare && spare_.size() < kSpare) spare_.push_back(std::move(written.data));
    }
  }

  static constexpr size_t kSpare = 8, kLargestSpare = 4096;

  TraceWriter& writer_;
  UnitId unit_;
  TraceWriter::Segment* segment_ = nullptr;  // from the first event on
  std::vector<Bytes> spare_;
  EventIndex written_ = 0;
  std::array<Event, 3> events_;
  Event* complete_ = nullptr;  // older than open_
  Event* open_ = nullptr;
  Event* exit_ = nullptr;  // between closing() and close()
};

}  // namespace redrive
