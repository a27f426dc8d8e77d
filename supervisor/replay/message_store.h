// Where the intervals that are re-driven together meet: payloads that one sends again and another receives, and
// processes that one forks and another takes over. The payloads themselves are in a PayloadTable; this class knows what
// can still come, lets intervals wait for it, and tells them if it never will. Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/stub.h"
#include "logstore/event.h"
#include "supervisor/replay/arrival_order.h"
#include "supervisor/replay/failure_causes.h"
#include "supervisor/replay/payload_table.h"
#include "supervisor/tier/gate.h"

namespace redrive {

// A child forked by a re-driven parent, to be taken over by the thread that re-drives it.
struct ForkedChild {
  ReleasedStub stub;
  Address brk = 0;
  user_regs_struct regs{};
  std::shared_ptr<LocalDescriptors> descriptors;
  std::shared_ptr<Gate> gate;  // with a slot of the child's own; null: none
};

class MessageStore {
 public:
  // Only these payloads and births are kept. The intervals are known by their index; no event is executed by two.
  static Result<std::unique_ptr<MessageStore>> make(const std::vector<ExecutedEvents>& intervals,
                                                    std::vector<NeededSend> sends, std::set<EventRef> births,
                                                    PayloadTable::Keep keep = PayloadTable::Keep::until_received);
  ~MessageStore();  // ends processes that were never taken over
  MessageStore(const MessageStore&) = delete;
  MessageStore& operator=(const MessageStore&) = delete;

  bool wants_birth(EventRef event) const { return births_.contains(event); }
  // Does nothing if no interval needs the payload.
  void publish(EventRef event, const Bytes& payload);
  void publish(EventRef event, ForkedChild birth);

  // Copies bytes of a payload; waits until its sender has sent it. Fails if that will never happen.
  Result<Bytes> payload(const MessagePart& part);
  // Takes a birth over.
  Result<ForkedChild> birth(EventRef event);

  // Keeps the total order of these receives, which happen from now on; see ArrivalOrder.
  void keep_order_of(std::vector<uint64_t> arrivals);
  bool keeps_order() const;
  // Waits until one of them may happen. Fails if that will never happen.
  Result<void> await_turn(uint64_t arrival);
  void turn_taken(uint64_t arrival);          // it has happened
  std::vector<uint64_t> turns_taken() const;  // in the order in which they happened

  // An interval is executed from now on, on this processor.
  void interval_starts(size_t interval, int processor);
  // An interval stands stopped before its end, and sends nothing. `count` of these continue.
  void interval_stands();
  void intervals_go_on(size_t count);
  // An interval has ended: well, or because of `failure`. Those that wait for what only it could bring are told, and
  // told why: what failed first, however many intervals failed because of it.
  void interval_ended(size_t interval, std::optional<Error> failure);

  // Some interval has executed something.
  void got_on() { progress_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

  // How many intervals wait for something, about now.
  size_t waiting() const;
  // The forks whose children have not been taken over yet.
  std::vector<EventRef> births_left() const;
  PayloadTable& payloads() const { return *payloads_; }
  const ExecutedEvents& events_of(size_t interval) const { return executors_.intervals()[interval]; }

 private:
  MessageStore(Executors executors, std::unique_ptr<PayloadTable> payloads, std::set<EventRef> births)
      : executors_(std::move(executors)), payloads_(std::move(payloads)), births_(std::move(births)) {}
  bool available(EventRef event) const REQUIRES(mutex_);
  bool comes_no_more(EventRef event) const REQUIRES(mutex_);
  // Gives the mutex up while it waits. Returns whether the event's message or child is there.
  bool wait_for(EventRef event) REQUIRES(mutex_);
  bool stuck() const REQUIRES(mutex_);
  Error never_came(EventRef event, std::string what) REQUIRES(mutex_);
  void wake_all() REQUIRES(mutex_);

  const Executors executors_;
  const std::unique_ptr<PayloadTable> payloads_;
  const std::set<EventRef> births_;
  std::atomic<uint64_t> progress_ = 0;
  mutable Mutex mutex_;
  Condition changed_;
  std::map<EventRef, ForkedChild> born_ GUARDED_BY(mutex_);
  size_t bearing_ GUARDED_BY(mutex_) = 0;                     // intervals that wait until fewer are left in born_
  std::map<EventRef, Condition*> takers_ GUARDED_BY(mutex_);  // intervals that wait for these births
  size_t taken_over_ GUARDED_BY(mutex_) = 0;                  // births
  // So many births were taken over when none was for a while, though many were left.
  std::optional<size_t> none_taken_since_ GUARDED_BY(mutex_);
  std::vector<bool> ended_ GUARDED_BY(mutex_);  // by interval
  size_t running_ GUARDED_BY(mutex_) = 0;
  std::multiset<EventRef> awaited_ GUARDED_BY(mutex_);  // one entry for each interval that waits here
  ArrivalOrder order_ GUARDED_BY(mutex_);
  std::multiset<uint64_t> awaited_turns_ GUARDED_BY(mutex_);  // one entry for each interval that waits for its turn
  bool stuck_ GUARDED_BY(mutex_) = false;                     // all were waiting for each other
  FailureCauses causes_ GUARDED_BY(mutex_);
};

}  // namespace redrive
