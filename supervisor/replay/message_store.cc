#include "supervisor/replay/message_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr auto kRecheck = 100ms;    // after which a waiter checks whether what it waits for can still come
constexpr size_t kMostBirths = 64;  // forked processes not taken over yet; with more of them, parents wait

}  // namespace

Result<std::unique_ptr<MessageStore>> MessageStore::make(const std::vector<ExecutedEvents>& intervals,
                                                         std::vector<NeededSend> sends, std::set<EventRef> births,
                                                         PayloadTable::Keep keep) {
  // An event that bears a process sends nothing.
  std::erase_if(sends, [&](const NeededSend& send) { return births.contains(send.event); });
  Executors executors(intervals);
  ASSIGN_OR_RETURN(auto payloads, PayloadTable::make(std::move(sends), executors, keep));
  std::unique_ptr<MessageStore> store(new MessageStore(std::move(executors), std::move(payloads), std::move(births)));
  const Lock lock(store->mutex_);
  store->ended_.resize(intervals.size());
  store->causes_.resize(intervals.size());
  store->running_ = intervals.size();
  return store;
}

MessageStore::~MessageStore() {
  for (const auto& [event, birth] : born_) birth.stub.end();
}

void MessageStore::publish(EventRef event, const Bytes& payload) {
  if (const auto place = payloads_->index(event)) payloads_->put(*place, payload);
}

void MessageStore::publish(EventRef event, ForkedChild birth) {
  ASSERT(birth.stub.pid > 0);
  const Lock lock(mutex_);
  ++bearing_;
  for (size_t taken = taken_over_; born_.size() >= kMostBirths && !stuck_; taken = taken_over_) {
    // Those that would take them over may not have begun, and may begin only when this interval has ended.
    if (taken == none_taken_since_ || (!changed_.wait_for(mutex_, kRecheck) && taken == taken_over_)) {
      none_taken_since_ = taken;
      break;
    }
  }
  --bearing_;
  born_[event] = std::move(birth);
  if (const auto taker = takers_.find(event); taker != takers_.end()) taker->second->notify_all();
}

bool MessageStore::available(EventRef event) const {
  const auto place = payloads_->index(event);
  return place ? payloads_->is_sent(*place) : born_.contains(event);
}

bool MessageStore::comes_no_more(EventRef event) const {
  const auto executor = executors_.of(event);
  return !executor || ended_[*executor] || stuck_;
}

// Has every waiter look again.
void MessageStore::wake_all() {
  changed_.notify_all();
  for (const auto& [event, taker] : takers_) taker->notify_all();
  PayloadTable::Hint near = 0;
  for (const EventRef event : awaited_) {
    if (const auto place = payloads_->index(event, near)) payloads_->wake(*place);
  }
}

// The intervals are closed under dependences, and dependences follow causality, as arrivals do. So one of the intervals
// can always continue, or is told that it cannot. If all of them wait for something that is absent, a recorded
// dependence is wrong, and waiting for ever would hide that.
bool MessageStore::stuck() const {
  const auto waits = [this](EventRef event) REQUIRES(mutex_) { return !available(event) && !comes_no_more(event); };
  const auto has_no_turn = [this](uint64_t turn)
                               REQUIRES(mutex_) { return !order_.is_turn(turn) && !order_.is_broken(); };
  return awaited_.size() + awaited_turns_.size() >= running_ && std::all_of(awaited_.begin(), awaited_.end(), waits) &&
         std::all_of(awaited_turns_.begin(), awaited_turns_.end(), has_no_turn);
}

bool MessageStore::wait_for(EventRef event) {
  const auto place = payloads_->index(event);
  const auto entry = awaited_.insert(event);
  if (stuck()) wake_all();
  Condition born;
  if (!place) takers_[event] = &born;
  while (!available(event) && !comes_no_more(event) && !stuck()) {
    if (!place) {
      born.wait_for(mutex_, kRecheck);
      continue;
    }
    mutex_.unlock();
    payloads_->await(*place, kRecheck);
    mutex_.lock();
  }
  if (!place) takers_.erase(event);
  const bool there = available(event);
  stuck_ |= !there && !comes_no_more(event);
  awaited_.erase(entry);
  if (!there) wake_all();
  return there;
}

Error MessageStore::never_came(EventRef event, std::string what) {
  const auto executor = executors_.of(event);
  return causes_.because_of(executor ? causes_.of(*executor) : std::nullopt, std::move(what));
}

Result<Bytes> MessageStore::payload(const MessagePart& part) {
  const Lock lock(mutex_);
  const auto place = payloads_->index(part.sender);
  if (!place) {
    return Error{fmt::format("event {} of unit {} sends no message", part.sender.event, part.sender.unit),
                 Status::damaged};
  }
  if (!wait_for(part.sender)) {
    return never_came(
        part.sender, fmt::format("the sender did not get to event {} of unit {}", part.sender.event, part.sender.unit));
  }
  auto bytes = payloads_->part(*place, part.offset, part.length);
  if (!bytes) return Error{fmt::format("unit {} sent a shorter message than it did when recorded", part.sender.unit)};
  return std::move(*bytes);
}

Result<ForkedChild> MessageStore::birth(EventRef event) {
  const Lock lock(mutex_);
  if (!wait_for(event)) {
    return never_came(event, fmt::format("the parent, unit {}, did not get to its fork", event.unit));
  }
  ForkedChild birth = std::move(born_.at(event));
  born_.erase(event);
  ++taken_over_;
  if (bearing_ > 0) changed_.notify_all();
  return birth;
}

void MessageStore::keep_order_of(std::vector<uint64_t> arrivals) {
  const Lock lock(mutex_);
  order_.keep(std::move(arrivals));
}

bool MessageStore::keeps_order() const {
  const Lock lock(mutex_);
  return order_.is_kept();
}

Result<void> MessageStore::await_turn(uint64_t arrival) {
  const Lock lock(mutex_);
  const auto entry = awaited_turns_.insert(arrival);
  if (stuck()) wake_all();
  while (!order_.is_turn(arrival) && !order_.is_broken() && !stuck_ && !stuck()) changed_.wait_for(mutex_, kRecheck);
  const bool may = order_.is_turn(arrival);
  stuck_ |= !may && !order_.is_broken();
  awaited_turns_.erase(entry);
  if (may) return {};
  wake_all();
  return causes_.because_of(causes_.first(), fmt::format("a receive that came before no. {} did not happen", arrival));
}

void MessageStore::turn_taken(uint64_t arrival) {
  const Lock lock(mutex_);
  order_.take(arrival);
  changed_.notify_all();
}

std::vector<uint64_t> MessageStore::turns_taken() const {
  const Lock lock(mutex_);
  return order_.taken();
}

void MessageStore::interval_stands() {
  const Lock lock(mutex_);
  --running_;
  wake_all();
}

void MessageStore::intervals_go_on(size_t count) {
  const Lock lock(mutex_);
  running_ += count;
}

void MessageStore::interval_starts(size_t interval, int processor) {
  payloads_->interval_starts(events_of(interval), processor);
}

void MessageStore::interval_ended(size_t interval, std::optional<Error> failure) {
  payloads_->interval_ended(interval);
  const Lock lock(mutex_);
  --running_;
  ended_[interval] = true;
  if (failure) {
    causes_.add(interval, std::move(*failure));
    order_.break_off();
  }
  wake_all();
}

size_t MessageStore::waiting() const {
  const Lock lock(mutex_);
  return payloads_->waiting() + awaited_.size() + awaited_turns_.size() + bearing_;
}

std::vector<EventRef> MessageStore::births_left() const {
  const Lock lock(mutex_);
  std::vector<EventRef> forks;
  for (const auto& [fork, birth] : born_) forks.push_back(fork);
  return forks;
}

}  // namespace redrive
