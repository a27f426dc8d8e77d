// The event stream of one unit on its way into the trace.
//
// A syscall's entry is held back until its exit, so that both become one event unless another event of the unit comes
// between. The last complete event is held back too, so that it can count the calls that continue its series, which is
// one of identical calls, or of a cycle of unsuccessful tests (event.h).
//
// Events are made in place, in memory that is reused. Each gets the time that it is when it is complete (EventClock).
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "base/assert.h"
#include "logstore/trace.h"

namespace redrive {

class UnitLog {
 public:
  // `now` must outlive it.
  UnitLog(TraceWriter& writer, UnitId unit, const EventTime& now) : writer_(writer), unit_(unit), now_(now) {}
  UnitLog(const UnitLog&) = delete;
  UnitLog& operator=(const UnitLog&) = delete;

  // The number that the next event gets, provided it does not continue a series.
  EventIndex next() const { return written_ + (complete_ ? 1 : 0) + (open_ ? 1 : 0); }

  // Opens the event of a syscall's entry, to be filled in.
  Event& open() {
    flush_open();
    open_ = blank();
    open_->time = now_;
    return *open_;
  }
  // The entry that is still open if it is this thread's: may be amended.
  Event* open_of(ThreadSerial thread) { return open_ && open_->thread == thread ? open_ : nullptr; }

  // The call whose entry is open did not happen after all.
  void cancel() { open_ = nullptr; }

  // Where result, writes and so on of a syscall's exit belong: its open entry, or an event of its own if another came
  // between. close() says that it is complete, and for how many calls it stands: `times` and `cycle`, as in Event.
  Event& closing(ThreadSerial thread, int32_t number) {
    ASSERT(!exit_);
    if (Event* entry = open_of(thread)) return *entry;
    exit_ = blank();
    exit_->kind = EventKind::exit;
    exit_->thread = thread;
    exit_->number = number;
    return *exit_;
  }
  // Memory for what an event writes, reused if there is any.
  Bytes spare() {
    if (spare_.empty()) return {};
    Bytes bytes = std::move(spare_.back());
    spare_.pop_back();
    return bytes;
  }
  // The number of the event from closing().
  EventIndex closing_index() const { return exit_ ? next() : next() - 1; }
  void close(bool test, uint64_t times = 1, uint32_t cycle = 1) {
    if (exit_) {
      exit_->time = now_;
      flush();
      complete_ = std::exchange(exit_, nullptr);
      return;
    }
    ASSERT(open_);
    Event& event = *std::exchange(open_, nullptr);
    event.time = now_;
    if (test && event.result <= 0) {
      add_test(event);
      repeat(times - 1, std::clamp<uint32_t>(cycle, 1, static_cast<uint32_t>(calls_.count)));
    } else if (test && complete_ && complete_->cycle == 1 && same(event, *complete_)) {
      complete_->repeat += times;
    } else {
      flush_complete();
      calls_.count = 0;
      complete_ = &event;
      complete_->repeat = times;
    }
  }

  void add(Event event) {
    flush();
    complete_ = blank();
    *complete_ = std::move(event);
    complete_->time = now_;
  }

  void flush() {
    flush_complete();
    flush_open();
  }

 private:
  // The last few, the latest last.
  struct Last {
    std::array<Event*, kLongestCycle> events{};
    size_t count = 0;
    void add(Event* event) {
      if (count == events.size()) keep(count - 1);
      events[count++] = event;
    }
    void keep(size_t last) {
      std::copy(events.begin() + static_cast<ptrdiff_t>(count - last), events.begin() + static_cast<ptrdiff_t>(count),
                events.begin());
      count = last;
    }
    Event* from_end(size_t n) const { return events[count - n]; }  // 1: the last
    bool holds(const Event* event) const { return std::find(begin(), end(), event) != end(); }
    Event* const* begin() const { return events.data(); }
    Event* const* end() const { return begin() + count; }
  };

  Event* blank() {
    for (Event& event : events_) {
      if (&event == complete_ || &event == open_ || &event == exit_ || calls_.holds(&event)) continue;
      keep_memory(event);
      event.clear();
      return &event;
    }
    ASSERT(!"an event was not closed");
    return nullptr;
  }
  // Whether the calls of both are the same.
  static bool same(Event& event, const Event& other) {
    event.repeat = other.repeat;
    event.cycle = other.cycle;
    const EventTime time = std::exchange(event.time, other.time);
    const bool same = event == other;
    event.repeat = event.cycle = 1;
    event.time = time;
    return same;
  }
  // If this event's call continues the series of the complete event: the one of the last events that holds the same
  // call. Null if it does not.
  Event* continued_by(Event& event) {
    if (!complete_ || tests_.count == 0) return nullptr;
    if (complete_->repeat > 1) {
      Event* const next = next_in_series();
      return same(event, *next) ? next : nullptr;
    }
    for (size_t cycle = 1; cycle <= tests_.count; ++cycle) {
      Event* const first = tests_.from_end(cycle);
      if (!same(event, *first)) continue;
      complete_->cycle = static_cast<uint32_t>(cycle);
      tests_.keep(cycle);
      return first;
    }
    return nullptr;
  }
  Event* next_in_series() const {
    return tests_.from_end(complete_->cycle - (complete_->repeat - 1) % complete_->cycle);
  }
  void add_test(Event& event) {
    if (Event* again = continued_by(event)) {
      calls_.add(again);
      ++complete_->repeat;
      return;
    }
    const bool follows = complete_ && complete_->repeat == 1 && complete_->thread == event.thread;
    if (!follows) tests_.count = 0;
    if (complete_) write(*complete_);
    complete_ = &event;
    tests_.add(&event);
    calls_.add(&event);
  }
  // The last `cycle` calls were made again in turn, `times` calls in all.
  void repeat(uint64_t times, uint32_t cycle) {
    for (; times > 0; --times) {
      if (complete_->repeat > 1 && cycle % complete_->cycle == 0) break;
      Event& event = *blank();
      event = *calls_.from_end(cycle);
      event.repeat = event.cycle = 1;
      add_test(event);
    }
    const uint64_t last = std::min<uint64_t>(times, kLongestCycle);
    complete_->repeat += times - last;
    for (uint64_t i = 0; i < last; ++i) {
      calls_.add(next_in_series());
      ++complete_->repeat;
    }
  }
  void flush_complete() {
    tests_.count = 0;
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
    if (!calls_.holds(&event)) keep_memory(event);
  }
  // What the event wrote is not needed any more.
  void keep_memory(Event& event) {
    for (auto& written : event.writes) {
      const size_t capacity = written.data.capacity();
      if (capacity && capacity <= kLargestSpare && spare_.size() < kSpare) spare_.push_back(std::move(written.data));
    }
    event.writes.clear();
  }

  static constexpr size_t kSpare = 8, kLargestSpare = 4096;

  TraceWriter& writer_;
  UnitId unit_;
  const EventTime& now_;
  TraceWriter::Segment* segment_ = nullptr;  // from the first event on
  std::vector<Bytes> spare_;
  EventIndex written_ = 0;
  std::array<Event, 3 + kLongestCycle> events_;
  Last calls_;  // events that hold what the last unsuccessful tests were, each of them counted
  Last tests_;  // the last events, as long as each is one such call, and the next can make a cycle of them
  Event* complete_ = nullptr;  // older than open_
  Event* open_ = nullptr;
  Event* exit_ = nullptr;  // between closing() and close()
};

}  // namespace redrive
