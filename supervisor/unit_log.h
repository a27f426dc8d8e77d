// The event stream of one unit on its way into the trace.
//
// A syscall's entry is held back until its exit, so that both become one event unless another event of the unit comes
// between. The last complete event is held back too, so that a series of identical unsuccessful tests becomes one event
// with a count.
#pragma once

#include <optional>

#include "logstore/trace.h"

namespace redrive {

class UnitLog {
 public:
  UnitLog(TraceWriter& writer, UnitId unit) : writer_(writer), unit_(unit) {}

  // The number that the next event gets, provided it does not continue a series.
  EventIndex next() const { return written_ + (complete_ ? 1 : 0) + (open_ ? 1 : 0); }

  void open(Event event) {
    flush_open();
    open_ = std::move(event);
  }
  // The entry that is still open if it is this thread's: may be amended.
  Event* open_of(ThreadSerial thread) { return open_ && open_->thread == thread ? &*open_ : nullptr; }

  // The call whose entry is open did not happen after all.
  void cancel() { open_.reset(); }

  // A syscall's exit. `exit` holds result, writes and so on; it is merged into the open entry if no event came between.
  // `times`: as many calls that were the same, one after the other.
  void close(Event exit, bool test, uint64_t times = 1) {
    if (!open_of(exit.thread)) {
      exit.kind = EventKind::exit;
      add(std::move(exit));
      return;
    }
    exit.kind = EventKind::syscall;
    exit.number = open_->number;
    exit.args = open_->args;
    exit.ip = open_->ip;
    exit.regs_hash = open_->regs_hash;
    exit.in_hash = open_->in_hash;
    exit.send = open_->send;
    if (!exit.child_unit) exit.child_unit = open_->child_unit;
    if (!exit.child_thread) exit.child_thread = open_->child_thread;
    open_.reset();
    if (test && complete_ && continues(exit)) {
      complete_->repeat += times;
      return;
    }
    exit.repeat = times;
    add(std::move(exit));
  }

  void add(Event event) {
    flush();
    complete_ = std::move(event);
  }

  void flush() {
    flush_complete();
    flush_open();
  }

 private:
  bool continues(Event& event) const {
    event.repeat = complete_->repeat;
    const bool same = event == *complete_;
    event.repeat = 1;
    return same;
  }
  void flush_complete() {
    if (!complete_) return;
    writer_.append(unit_, *complete_);
    complete_.reset();
    ++written_;
  }
  void flush_open() {
    if (!open_) return;
    flush_complete();
    open_->kind = EventKind::entry;
    writer_.append(unit_, *open_);
    open_.reset();
    ++written_;
  }

  TraceWriter& writer_;
  UnitId unit_;
  EventIndex written_ = 0;
  std::optional<Event> complete_;  // older than open_
  std::optional<Event> open_;
};

}  // namespace redrive
