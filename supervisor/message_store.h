// Where the intervals that are re-driven together meet: payloads that one sends again and another receives, and
// processes that one forks and another goes on with.
//
// Payloads lie in memory that the re-driven processes share, and the code inside them sends and receives without a stop
// (interceptors/inprocess/replay.cc); the functions here do the same for calls that stop. Thread-safe.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/remote.h"
#include "base/result.h"
#include "interceptors/inprocess/layout.h"
#include "logstore/event.h"
#include "supervisor/gate.h"

namespace redrive {

// A child forked by a re-driven parent, stopped and traced by nobody, to be taken over by the thread that re-drives it.
struct Birth {
  pid_t pid = -1;
  Address brk = 0;
  user_regs_struct regs{};
  std::shared_ptr<Gate> gate;  // with a slot of the child's own; null: none
};

// A payload that somebody in the replay set needs.
struct NeededSend {
  EventRef event;
  uint64_t length = 0;  // how much of it
  int processor = 0;    // on which it is sent
};

class MessageStore {
 public:
  // Only these events' payloads and births are kept; each event once. `intervals`: how many are re-driven.
  static Result<std::unique_ptr<MessageStore>> make(const std::vector<NeededSend>& sends, std::set<EventRef> births,
                                                    size_t intervals);
  ~MessageStore();  // ends processes that were never taken over
  MessageStore(const MessageStore&) = delete;
  MessageStore& operator=(const MessageStore&) = delete;

  // Of the event's message in the table; none if nobody needs it.
  std::optional<uint64_t> index(EventRef event) const;
  bool wants_birth(EventRef event) const { return births_.contains(event); }
  // Nothing happens if nobody needs the payload.
  void publish(EventRef event, const Bytes& payload);
  void publish(EventRef event, Birth birth);

  // Copies bytes of a payload; waits until its sender has got there. Fails if that will never be.
  Result<Bytes> payload(const MessagePart& part);
  // Takes a birth over.
  Result<Birth> birth(EventRef event);

  // The total order: each of these receives, by arrival number, is to happen when all with smaller numbers have.
  void keep_order_of(std::vector<uint64_t> arrivals);
  bool keeps_order() const { return !turns_.empty(); }
  // Waits until one of them may happen. Fails if that will never be.
  Result<void> await_turn(uint64_t arrival);
  void turn_taken(uint64_t arrival);          // it has happened
  std::vector<uint64_t> turns_taken() const;  // in the order in which they were

  // An interval stands stopped on its way: nothing comes from it. So many of these go on.
  void interval_stands();
  void intervals_go_on(size_t count);

  // An interval has ended, well or not; whoever waits for something that can no longer come is told.
  void interval_ended(bool failed);

  // The file that holds the table and the bytes; 0 bytes: no message is needed.
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

 private:
  MessageStore(std::set<EventRef> births, size_t intervals) : births_(std::move(births)), running_(intervals) {}
  gate::Message& message(uint64_t index) const { return reinterpret_cast<gate::Message*>(memory_)[index]; }
  uint8_t* bytes(const gate::Message& message) const { return memory_ + message.offset; }
  bool available(EventRef event) const;
  bool wait_for(std::unique_lock<std::mutex>& lock, EventRef event);
  bool is_turn(uint64_t arrival) const;
  bool stuck() const;
  void wake_all();

  const std::set<EventRef> births_;
  Fd file_;
  std::string path_;
  uint8_t* memory_ = nullptr;
  uint64_t size_ = 0;
  std::map<EventRef, uint64_t> indices_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::map<EventRef, Birth> born_;
  size_t running_;
  std::multiset<EventRef> awaited_;  // one entry an interval that waits here
  std::vector<uint64_t> turns_, taken_;
  std::multiset<uint64_t> awaited_turns_;  // one entry an interval that waits for its turn
  bool failed_ = false;
};

}  // namespace redrive
