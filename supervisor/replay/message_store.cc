#include "supervisor/replay/message_store.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <tuple>

#include "base/check.h"
#include "base/page.h"

namespace redrive {
namespace {

using gate::MessageState;
using namespace std::chrono_literals;

constexpr auto kPatience = 100ms;  // then who waits looks whether what it waits for can still come
// Forked processes that nobody has taken over yet: who would add to them waits.
constexpr size_t kMostBirths = 64;

std::atomic_ref<MessageState> state(gate::Message& message) { return std::atomic_ref(message.state); }

void futex(gate::Message& message, int operation, uint32_t value, const timespec* timeout) {
  syscall(SYS_futex, &message.state, operation, value, timeout, nullptr, 0);
}

void wake(gate::Message& message) { futex(message, FUTEX_WAKE, INT_MAX, nullptr); }

}  // namespace

Result<std::unique_ptr<MessageStore>> MessageStore::make(const std::vector<ExecutedEvents>& intervals,
                                                         std::vector<NeededSend> sends, std::set<EventRef> births) {
  std::unique_ptr<MessageStore> store(new MessageStore(std::move(births)));
  store->intervals_ = intervals;
  for (size_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].first < intervals[i].end) store->by_first_event_[{intervals[i].unit, intervals[i].first}] = i;
  }
  const Lock lock(store->mutex_);
  store->ended_.resize(intervals.size());
  store->causes_.resize(intervals.size());
  store->receives_.resize(intervals.size());
  store->running_ = intervals.size();
  if (!sends.empty()) TRY(store->lay_out(std::move(sends)));
  return store;
}

// Messages with the same receivers lie side by side, in the table and behind it, because they are released together.
Result<void> MessageStore::lay_out(std::vector<NeededSend> sends) {
  std::sort(sends.begin(), sends.end(),
            [](const auto& a, const auto& b) { return std::tie(a.event, a.receiver) < std::tie(b.event, b.receiver); });
  std::map<std::vector<uint32_t>, uint32_t> group_of;
  std::vector<uint32_t> receivers;
  std::vector<uint64_t> lengths;
  for (size_t i = 0; i < sends.size();) {
    const EventRef event = sends[i].event;
    uint64_t length = 0;
    receivers.clear();
    for (; i < sends.size() && sends[i].event == event; ++i) {
      length = std::max(length, sends[i].length);
      if (receivers.empty() || receivers.back() != sends[i].receiver) receivers.push_back(sends[i].receiver);
    }
    const auto [group, fresh] = group_of.try_emplace(receivers, groups_.size());
    if (fresh) {
      groups_.emplace_back().receivers = receivers.size();
      for (const uint32_t receiver : receivers) receives_[receiver].push_back(group->second);
    }
    ++groups_[group->second].end;
    places_.push_back({event, 0, group->second});
    lengths.push_back(length);
  }
  // More than any program has, so that no sum of what a trace says is another number.
  constexpr uint64_t kMostBytes = 1ull << 46;
  uint64_t size = sizeof(gate::MessagesHeader) + places_.size() * sizeof(gate::Message);
  for (const uint64_t length : lengths) {
    if (length > kMostBytes - std::min(kMostBytes, size)) {
      return Error{"the messages that are needed are longer than memory can be", Status::damaged};
    }
    size += length;
  }
  ASSIGN_OR_RETURN(shared_, SharedMemory::make("redrive-messages", size, SharedMemory::Tracees::write));
  uint64_t count = 0;
  for (auto& group : groups_) {
    group.first = std::exchange(count, count + group.end);
    group.end = group.first;  // grows again below
  }
  for (auto& place : places_) place.index = groups_[place.group].end++;
  std::vector<uint64_t> in_order(places_.size());
  for (size_t i = 0; i < places_.size(); ++i) in_order[places_[i].index] = lengths[i];
  uint64_t offset = sizeof(gate::MessagesHeader) + places_.size() * sizeof(gate::Message);
  offsets_.reserve(in_order.size() + 1);
  for (const uint64_t length : in_order) offsets_.push_back(std::exchange(offset, offset + length));
  offsets_.push_back(offset);
  return {};
}

MessageStore::~MessageStore() {
  for (const auto& [event, birth] : born_) birth.stub.end();
}

std::optional<uint64_t> MessageStore::index(EventRef event, Hint& near) const {
  const auto is_place = [&](size_t at) {  // of the first that is not before the event
    return at <= places_.size() && (at == 0 || places_[at - 1].event < event) &&
           (at == places_.size() || event <= places_[at].event);
  };
  if (!is_place(near) && !is_place(++near)) {
    const auto found = std::lower_bound(places_.begin(), places_.end(), event,
                                        [](const Place& place, EventRef wanted) { return place.event < wanted; });
    near = static_cast<size_t>(found - places_.begin());
  }
  if (near == places_.size() || places_[near].event != event) return std::nullopt;
  return places_[near].index;
}

void MessageStore::publish(EventRef event, const Bytes& payload) {
  Hint unknown = 0;
  const auto place = index(event, unknown);
  if (!place) return;
  gate::Message& to = message(*place);
  to.length = payload.size();
  std::copy_n(payload.begin(), std::min<uint64_t>(capacity(*place), payload.size()),
              shared_->data() + offsets_[*place]);
  if (state(to).exchange(MessageState::sent) == MessageState::awaited) wake(to);
}

void MessageStore::publish(EventRef event, Birth birth) {
  CHECK(birth.stub.pid > 0);
  const Lock lock(mutex_);
  ++bearing_;
  while (born_.size() >= kMostBirths && !stuck_) changed_.wait_for(mutex_, kPatience);
  --bearing_;
  born_[event] = std::move(birth);
  changed_.notify_all();
}

bool MessageStore::available(EventRef event) const {
  Hint unknown = 0;
  const auto place = index(event, unknown);
  return place ? state(message(*place)).load() == MessageState::sent : born_.contains(event);
}

// Which interval executes the event.
std::optional<size_t> MessageStore::executor_of(EventRef event) const {
  const auto after = by_first_event_.upper_bound(event);
  if (after == by_first_event_.begin()) return std::nullopt;
  const size_t interval = std::prev(after)->second;
  const ExecutedEvents& its = intervals_[interval];
  return its.unit == event.unit && event.event < its.end ? std::optional(interval) : std::nullopt;
}

bool MessageStore::comes_no_more(EventRef event) const {
  const auto executor = executor_of(event);
  return !executor || ended_[*executor] || stuck_;
}

// Everybody who waits here is to look again.
void MessageStore::wake_all() {
  changed_.notify_all();
  Hint unknown = 0;
  for (const EventRef event : awaited_) {
    if (const auto place = index(event, unknown)) wake(message(*place));
  }
}

// The intervals are closed under dependences and these follow causality, as do arrivals, so somebody can always go on,
// or is told that he cannot; if all wait for what is not there, a recorded dependence is wrong, and waiting for ever
// would hide it.
bool MessageStore::stuck() const {
  const auto waits = [this](EventRef event) REQUIRES(mutex_) { return !available(event) && !comes_no_more(event); };
  const auto has_no_turn = [this](uint64_t turn) REQUIRES(mutex_) { return !is_turn(turn) && !first_cause_; };
  return awaited_.size() + awaited_turns_.size() >= running_ && std::all_of(awaited_.begin(), awaited_.end(), waits) &&
         std::all_of(awaited_turns_.begin(), awaited_turns_.end(), has_no_turn);
}

bool MessageStore::wait_for(EventRef event) {
  Hint unknown = 0;
  const auto place = index(event, unknown);
  const auto entry = awaited_.insert(event);
  if (stuck()) wake_all();
  while (!available(event) && !comes_no_more(event) && !stuck()) {
    if (!place) {
      changed_.wait_for(mutex_, kPatience);
      continue;
    }
    gate::Message& wanted = message(*place);
    MessageState absent = MessageState::absent;
    state(wanted).compare_exchange_strong(absent, MessageState::awaited);
    mutex_.unlock();
    const timespec timeout{0, std::chrono::nanoseconds(kPatience).count()};
    futex(wanted, FUTEX_WAIT, static_cast<uint32_t>(MessageState::awaited), &timeout);
    mutex_.lock();
  }
  const bool there = available(event);
  stuck_ |= !there && !comes_no_more(event);
  awaited_.erase(entry);
  if (!there) wake_all();
  return there;
}

Error MessageStore::because_of(const std::optional<Error>& cause, std::string what) {
  if (!cause) return Error{std::move(what)};
  Error error{fmt::format("{}: {}", what, cause->message), cause->status};
  cause_of_.emplace(error.message, *cause);
  return error;
}

Error MessageStore::never_came(EventRef event, std::string what) {
  const auto executor = executor_of(event);
  return because_of(executor ? causes_[*executor] : std::nullopt, std::move(what));
}

Result<Bytes> MessageStore::payload(const MessagePart& part) {
  const Lock lock(mutex_);
  if (!wait_for(part.sender)) {
    return never_came(part.sender,
                      fmt::format("the sender did not get to event {} of unit {}", part.sender.event, part.sender.unit));
  }
  Hint unknown = 0;
  const uint64_t place = *index(part.sender, unknown);
  const uint64_t length = std::atomic_ref(message(place).length).load();
  const uint64_t there = std::min(length, capacity(place));
  if (part.offset > there || part.length > there - part.offset) {
    return Error{fmt::format("unit {} sent a shorter message than it did when recorded", part.sender.unit)};
  }
  const uint8_t* first = shared_->data() + offsets_[place] + part.offset;
  return Bytes(first, first + part.length);
}

Result<Birth> MessageStore::birth(EventRef event) {
  const Lock lock(mutex_);
  if (!wait_for(event)) {
    return never_came(event, fmt::format("the parent, unit {}, did not get to its fork", event.unit));
  }
  Birth birth = std::move(born_.at(event));
  born_.erase(event);
  if (bearing_ > 0) changed_.notify_all();
  return birth;
}

void MessageStore::keep_order_of(std::vector<uint64_t> arrivals) {
  const Lock lock(mutex_);
  turns_ = std::move(arrivals);
  std::sort(turns_.begin(), turns_.end());
  next_turn_ = 0;
}

bool MessageStore::keeps_order() const {
  const Lock lock(mutex_);
  return !turns_.empty();
}

bool MessageStore::is_turn(uint64_t arrival) const {
  return next_turn_ < turns_.size() && turns_[next_turn_] == arrival;
}

Result<void> MessageStore::await_turn(uint64_t arrival) {
  const Lock lock(mutex_);
  const auto entry = awaited_turns_.insert(arrival);
  if (stuck()) wake_all();
  while (!is_turn(arrival) && !first_cause_ && !stuck_ && !stuck()) changed_.wait_for(mutex_, kPatience);
  const bool may = is_turn(arrival);
  stuck_ |= !may && !first_cause_;
  awaited_turns_.erase(entry);
  if (may) return {};
  wake_all();
  return because_of(first_cause_, fmt::format("a receive that came before no. {} did not happen", arrival));
}

void MessageStore::turn_taken(uint64_t arrival) {
  const Lock lock(mutex_);
  taken_.push_back(arrival);
  ++next_turn_;
  changed_.notify_all();
}

std::vector<uint64_t> MessageStore::turns_taken() const {
  const Lock lock(mutex_);
  return taken_;
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
  const ExecutedEvents& its = intervals_[interval];
  const auto before = [](const Place& place, EventRef wanted) { return place.event < wanted; };
  const auto first = std::lower_bound(places_.begin(), places_.end(), EventRef{its.unit, its.first}, before);
  const auto end = std::lower_bound(first, places_.end(), EventRef{its.unit, its.end}, before);
  const Lock lock(mutex_);
  for (auto place = first; place < end; ++place) {
    gate::Message& sent = message(place->index);
    sent.processor = static_cast<uint32_t>(processor);
    sent.offset = offsets_[place->index];
    sent.capacity = capacity(place->index);
    Group& group = groups_[place->group];
    if (group.released) continue;
    group.held_bytes += capacity(place->index);
    held_bytes_ += capacity(place->index);
  }
}

void MessageStore::interval_ended(size_t interval, std::optional<Error> failure) {
  const Lock lock(mutex_);
  --running_;
  ended_[interval] = true;
  if (failure) {
    const auto known = cause_of_.find(failure->message);
    causes_[interval] = known == cause_of_.end() ? std::move(failure) : known->second;
    if (!first_cause_) first_cause_ = causes_[interval];
  }
  for (const uint32_t group : receives_[interval]) {
    if (--groups_[group].receivers == 0) release(group);
  }
  wake_all();
}

// Gives back the memory of a group that nobody receives any more, in whole pages: with that of its neighbours, if they
// are released too.
void MessageStore::release(size_t group) {
  groups_[group].released = true;
  held_bytes_ -= std::exchange(groups_[group].held_bytes, 0);
  size_t first = group, last = group;
  while (first > 0 && groups_[first - 1].released) --first;
  while (last + 1 < groups_.size() && groups_[last + 1].released) ++last;
  const auto forget = [this](uint64_t start, uint64_t end, uint64_t fresh_start, uint64_t fresh_end) {
    start = std::max((start + kPageSize - 1) & ~(kPageSize - 1), fresh_start & ~(kPageSize - 1));
    end = std::min(end & ~(kPageSize - 1), (fresh_end + kPageSize - 1) & ~(kPageSize - 1));
    if (start < end) shared_->clear(start, end - start);
  };
  const auto entry = [](uint64_t index) { return sizeof(gate::MessagesHeader) + index * sizeof(gate::Message); };
  const Group &its = groups_[group], &low = groups_[first], &high = groups_[last];
  forget(entry(low.first), entry(high.end), entry(its.first), entry(its.end));
  forget(offsets_[low.first], offsets_[high.end], offsets_[its.first], offsets_[its.end]);
}

size_t MessageStore::waiting() const {
  const Lock lock(mutex_);
  const size_t inside = shared_ ? std::atomic_ref(header().waiting).load() : 0;
  return inside + awaited_.size() + awaited_turns_.size() + bearing_;
}

std::vector<EventRef> MessageStore::births_left() const {
  const Lock lock(mutex_);
  std::vector<EventRef> forks;
  for (const auto& [fork, birth] : born_) forks.push_back(fork);
  return forks;
}

uint64_t MessageStore::held_bytes() const {
  const Lock lock(mutex_);
  return held_bytes_;
}

}  // namespace redrive
