// Where the intervals that are re-driven together meet: payloads that one sends again and another receives, and
// processes that one forks and another goes on with.
//
// Payloads lie in memory that the re-driven processes share, and the code inside them sends and receives without a stop
// (interceptors/inprocess/replay.cc); the functions here do the same for calls that stop. What re-driven code writes
// into that memory can falsify no more than payloads: where they lie, and how long they can be, is kept here. The
// memory of a payload is released when all that receive it have ended. Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/stub.h"
#include "interceptors/inprocess/layout.h"
#include "logstore/event.h"
#include "supervisor/tier/gate.h"
#include "supervisor/tier/shared_memory.h"

namespace redrive {

// A child forked by a re-driven parent, to be taken over by the thread that re-drives it.
struct Birth {
  ReleasedStub stub;
  Address brk = 0;
  user_regs_struct regs{};
  std::shared_ptr<LocalDescriptors> descriptors;
  std::shared_ptr<Gate> gate;  // with a slot of the child's own; null: none
};

// The events that one of the intervals executes.
struct ExecutedEvents {
  UnitId unit = 0;
  EventIndex first = 0, end = 0;
};

// A payload that one of the intervals receives and finds in no log.
struct NeededSend {
  EventRef event;
  uint64_t length = 0;    // how much of it, from its start
  uint32_t receiver = 0;  // which interval
};

class MessageStore {
 public:
  // Only these payloads and births are kept. The intervals are known by their index; no event is executed by two.
  static Result<std::unique_ptr<MessageStore>> make(const std::vector<ExecutedEvents>& intervals,
                                                    std::vector<NeededSend> sends, std::set<EventRef> births);
  ~MessageStore();  // ends processes that were never taken over
  MessageStore(const MessageStore&) = delete;
  MessageStore& operator=(const MessageStore&) = delete;

  // Where the last event was found: the next one is looked for there first.
  using Hint = size_t;
  // Of the event's message in the table; none if nobody needs it.
  std::optional<uint64_t> index(EventRef event, Hint& near) const;
  bool wants_birth(EventRef event) const { return births_.contains(event); }
  // Nothing happens if nobody needs the payload.
  void publish(EventRef event, const Bytes& payload);
  void publish(EventRef event, Birth birth);

  // Copies bytes of a payload; waits until its sender has got there. Fails if that will never be.
  Result<Bytes> payload(const MessagePart& part);
  // Takes a birth over.
  Result<Birth> birth(EventRef event);

  // The total order: each of these receives, by arrival number, is to happen when all with smaller numbers have. They
  // are those that happen from now on; all of which it was said before have happened.
  void keep_order_of(std::vector<uint64_t> arrivals);
  bool keeps_order() const;
  // Waits until one of them may happen. Fails if that will never be.
  Result<void> await_turn(uint64_t arrival);
  void turn_taken(uint64_t arrival);          // it has happened
  std::vector<uint64_t> turns_taken() const;  // in the order in which they were

  // An interval is executed from now on, on this processor.
  void interval_starts(size_t interval, int processor);
  // An interval stands stopped on its way: nothing comes from it. So many of these go on.
  void interval_stands();
  void intervals_go_on(size_t count);
  // An interval has ended: well, or because of `failure`. Whoever waits for what only it could bring is told, and told
  // why: what failed first, however many intervals failed because of it.
  void interval_ended(size_t interval, std::optional<Error> failure);

  // Somebody has executed something.
  void got_on() { progress_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

  // How many intervals wait for something, about now.
  size_t waiting() const;
  // The forks whose children nobody has taken over yet.
  std::vector<EventRef> births_left() const;
  // Bytes of payloads of intervals that have started, for intervals that have not ended.
  uint64_t held_bytes() const;

  // The file that holds the table and the bytes; 0 bytes: no message is needed.
  const std::string& path() const { return shared_->path(); }
  uint64_t size() const { return shared_ ? shared_->size() : 0; }

 private:
  // Payloads that the same intervals receive.
  struct Group {
    uint64_t first = 0, end = 0;  // in the table
    size_t receivers = 0;         // that have not ended
    uint64_t held_bytes = 0;
    bool released = false;
  };
  struct Place {
    EventRef event;
    uint64_t index = 0;
    uint32_t group = 0;
  };

  explicit MessageStore(std::set<EventRef> births) : births_(std::move(births)) {}
  Result<void> lay_out(std::vector<NeededSend> sends) REQUIRES(mutex_);
  gate::MessagesHeader& header() const { return *reinterpret_cast<gate::MessagesHeader*>(shared_->data()); }
  gate::Message& message(uint64_t index) const {
    return reinterpret_cast<gate::Message*>(shared_->data() + sizeof(gate::MessagesHeader))[index];
  }
  uint64_t capacity(uint64_t index) const { return offsets_[index + 1] - offsets_[index]; }
  bool available(EventRef event) const REQUIRES(mutex_);
  bool comes_no_more(EventRef event) const REQUIRES(mutex_);
  // Gives the mutex up meanwhile. Whether it is there.
  bool wait_for(EventRef event) REQUIRES(mutex_);
  bool is_turn(uint64_t arrival) const REQUIRES(mutex_);
  bool stuck() const REQUIRES(mutex_);
  Error because_of(const std::optional<Error>& cause, std::string what) REQUIRES(mutex_);
  Error never_came(EventRef event, std::string what) REQUIRES(mutex_);
  void wake_all() REQUIRES(mutex_);
  std::optional<size_t> executor_of(EventRef event) const;
  void release(size_t group) REQUIRES(mutex_);

  const std::set<EventRef> births_;
  std::atomic<uint64_t> progress_ = 0;
  std::vector<ExecutedEvents> intervals_;
  std::map<EventRef, size_t> by_first_event_;
  std::optional<SharedMemory> shared_;
  std::vector<Place> places_;                    // by event
  std::vector<uint64_t> offsets_;                // of the bytes, by index in the table; and their end
  std::vector<std::vector<uint32_t>> receives_;  // by interval: the groups
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<Group> groups_ GUARDED_BY(mutex_);  // as they follow each other in the table
  uint64_t held_bytes_ GUARDED_BY(mutex_) = 0;
  std::map<EventRef, Birth> born_ GUARDED_BY(mutex_);
  size_t bearing_ GUARDED_BY(mutex_) = 0;       // intervals that wait until fewer are left
  std::vector<bool> ended_ GUARDED_BY(mutex_);  // intervals
  size_t running_ GUARDED_BY(mutex_) = 0;
  std::multiset<EventRef> awaited_ GUARDED_BY(mutex_);  // one entry an interval that waits here
  std::vector<uint64_t> turns_ GUARDED_BY(mutex_), taken_ GUARDED_BY(mutex_);
  size_t next_turn_ GUARDED_BY(mutex_) = 0;                   // of turns_
  std::multiset<uint64_t> awaited_turns_ GUARDED_BY(mutex_);  // one entry an interval that waits for its turn
  bool stuck_ GUARDED_BY(mutex_) = false;                     // all were waiting for each other
  // What made each interval fail, if it has failed; and what made the first one, after which turns will not be taken.
  std::vector<std::optional<Error>> causes_ GUARDED_BY(mutex_);
  std::optional<Error> first_cause_ GUARDED_BY(mutex_);
  std::map<std::string, Error> cause_of_ GUARDED_BY(mutex_);  // of what those who waited in vain were told
};

}  // namespace redrive
