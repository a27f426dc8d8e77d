// Where the intervals that are re-driven together meet: payloads that one sends again and another receives, processes
// that one forks and another goes on with, and the processors that they share.
//
// Thread-safe. An interval that waits for another gives up its processor meanwhile.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/remote.h"
#include "base/result.h"
#include "logstore/event.h"
#include "supervisor/gate.h"

namespace redrive {

// The processors that re-driven intervals may use, at most one interval on each at a time. Tracer and tracee stay on
// one processor: stops between processors cost ten times as much.
class Processors {
 public:
  explicit Processors(int count);
  int take();  // waits; the processor's number
  void give_back(int cpu);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> free_;
};

// A child forked by a re-driven parent, stopped and traced by nobody, to be taken over by the thread that re-drives it.
struct Birth {
  pid_t pid = -1;
  Address brk = 0;
  user_regs_struct regs{};
  std::shared_ptr<Gate> gate;  // with a slot of the child's own; null: none
};

class MessageStore {
 public:
  // Only these events' payloads and births are kept: those that somebody in the replay set needs.
  MessageStore(std::set<EventRef> sends, std::set<EventRef> births, size_t intervals);
  ~MessageStore();  // ends processes that were never taken over

  bool wants_send(EventRef event) const { return sends_.contains(event); }
  bool wants_birth(EventRef event) const { return births_.contains(event); }
  void publish(EventRef event, Bytes payload);
  void publish(EventRef event, Birth birth);

  // Copies bytes of a payload; waits until its sender has got there. Fails if that will never be.
  Result<Bytes> payload(const MessagePart& part);
  // Takes a birth over.
  Result<Birth> birth(EventRef event);
  // Whether the call would have to wait: then the caller gives up its processor first.
  bool has_payload(EventRef event) const;

  // An interval has ended, well or not; whoever waits for something that can no longer come is told.
  void interval_ended(bool failed);

 private:
  bool wait_for(std::unique_lock<std::mutex>& lock, EventRef event);

  const std::set<EventRef> sends_;
  const std::set<EventRef> births_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<EventRef, Bytes> payloads_;
  std::map<EventRef, Birth> born_;
  size_t running_;
  std::multiset<EventRef> awaited_;  // one entry an interval that waits
  bool failed_ = false;
};

}  // namespace redrive
