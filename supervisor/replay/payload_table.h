// The payloads that re-driven intervals send again for each other, in memory that the re-driven processes share. The
// code inside them sends and receives there without a stop (interceptors/inprocess/replay.cc); the functions here do
// the same for calls that stop. It does not know whether a message can still come: MessageStore does.
//
// What re-driven code writes into that memory can falsify payloads and nothing else: where they can lie, and how long
// they can be, is kept here. The memory of a payload is released when all intervals that receive it have ended; that of
// the many bytes that one interval sends to the same receivers is used again before (message_ring.h). Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/result.h"
#include "interceptors/inprocess/layout.h"
#include "logstore/event.h"
#include "supervisor/replay/executed_events.h"
#include "supervisor/tier/shared_memory.h"

namespace redrive {

// A receive, or a part of one, of a payload that no log holds.
struct NeededSend {
  EventRef event;
  uint64_t length = 0;    // how many bytes of it are needed, from its start
  uint32_t receiver = 0;  // the index of the interval
};

class PayloadTable {
 public:
  enum class Keep : uint8_t {
    until_received,  // each is received as often as is said, and not read again
    until_the_end,   // of the intervals that receive it
  };
  // What these intervals receive.
  static Result<std::unique_ptr<PayloadTable>> make(std::vector<NeededSend> sends, const Executors& executors,
                                                    Keep keep = Keep::until_received);

  // Where the last event was found: the next one is looked for there first.
  using Hint = size_t;
  // The place of the event's message in the table; none if no interval needs it.
  std::optional<uint64_t> index(EventRef event, Hint& near) const;
  std::optional<uint64_t> index(EventRef event) const;

  // The following functions take places that index() returned. Waiters are woken when a message is put in place.
  void put(uint64_t place, const Bytes& payload);
  bool is_sent(uint64_t place) const;
  // A part of a message that was sent; none if the message is shorter.
  std::optional<Bytes> part(uint64_t place, uint64_t offset, uint64_t length) const;
  // A receive, or a part of one, has what it wanted of a message.
  void end_use(uint64_t place) const;
  // Returns when the message is sent, at wake(), or after `patience`.
  void await(uint64_t place, std::chrono::nanoseconds patience) const;
  void wake(uint64_t place) const;

  // An interval that executes these events runs on this processor from now on.
  void interval_starts(const ExecutedEvents& its, int processor);
  // Gives what these events will send its memory, unless the table is very long: a trace can say anything of lengths.
  void make_room(const ExecutedEvents& its) const;
  void interval_moves(const ExecutedEvents& its, int processor);
  void interval_ended(size_t interval);

  // How many threads wait inside re-driven processes, about now.
  size_t waiting() const;
  // Bytes of payloads of intervals that have started, for intervals that have not ended; of what has a ring, at most
  // that.
  uint64_t held_bytes() const;

  // The file that holds the table and the bytes; 0 bytes: no message is needed.
  const std::string& path() const { return shared_->path(); }
  uint64_t size() const { return shared_ ? shared_->size() : 0; }

 private:
  // Payloads that one interval sends to the same intervals.
  struct Group {
    uint64_t first = 0, end = 0;  // in the table
    size_t receivers = 0;         // intervals that have not ended
    uint64_t held_bytes = 0;
    bool released = false;
  };
  struct Place {
    EventRef event;
    uint64_t index = 0;
    uint32_t group = 0;
  };
  // A group with a ring.
  struct InRing {
    uint64_t first = 0, end = 0;  // in the table
  };

  PayloadTable() = default;
  // How many bytes of a payload are needed, from its start, and how many receives need some of them.
  struct Length {
    uint64_t bytes = 0;
    uint32_t uses = 0;
  };
  // Finds places and groups. The result is in the order of the places.
  std::vector<Length> group(std::vector<NeededSend> sends, const Executors& executors) REQUIRES(mutex_);
  Result<void> lay_out(const std::vector<Length>& lengths, Keep keep) REQUIRES(mutex_);
  gate::MessagesHeader& header() const { return *reinterpret_cast<gate::MessagesHeader*>(shared_->data()); }
  gate::Message& message(uint64_t index) const {
    return reinterpret_cast<gate::Message*>(shared_->data() + sizeof(gate::MessagesHeader))[index];
  }
  gate::MessageRing& ring(uint32_t index) const {
    return reinterpret_cast<gate::MessageRing*>(shared_->data() + rings_)[index];
  }
  uint64_t capacity(uint64_t index) const { return offsets_[index + 1] - offsets_[index]; }
  // Places of payloads that these events send.
  std::span<const Place> sent_by(const ExecutedEvents& its) const;
  // The index of its group's ring, if it has one.
  std::optional<uint32_t> ring_of(uint64_t place) const;
  void release(size_t group) REQUIRES(mutex_);

  std::optional<SharedMemory> shared_;
  std::vector<Place> places_;                    // sorted by event
  std::vector<uint64_t> offsets_;                // of the bytes, by index in the table; the last one is their end
  std::vector<InRing> in_rings_;                 // in the order of the table, which is that of the rings
  uint64_t rings_ = 0, ring_bytes_ = 0;          // where the rings, and their bytes, begin
  std::vector<std::vector<uint32_t>> receives_;  // the groups that each interval receives
  mutable Mutex mutex_;
  std::vector<Group> groups_ GUARDED_BY(mutex_);  // in the order of the table
  uint64_t held_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace redrive
