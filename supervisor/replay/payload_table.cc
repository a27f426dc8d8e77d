#include "supervisor/replay/payload_table.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <map>
#include <tuple>
#include <utility>

#include "base/page.h"
#include "interceptors/inprocess/message_ring.h"
#include "interceptors/payload.h"

namespace redrive {
namespace {

using gate::MessageState;

// More than sockets and pipes hold: a receiver that keeps up is never further behind its sender.
constexpr uint64_t kRingBytes = 16 << 20;

std::atomic_ref<MessageState> state(gate::Message& message) { return std::atomic_ref(message.state); }

template <typename Word>
void futex(Word& word, int operation, uint32_t value, const timespec* timeout) {
  static_assert(sizeof word == sizeof(uint32_t));
  syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

Result<std::unique_ptr<PayloadTable>> PayloadTable::make(std::vector<NeededSend> sends, const Executors& executors,
                                                         Keep keep) {
  std::unique_ptr<PayloadTable> table(new PayloadTable);
  const Lock lock(table->mutex_);
  table->receives_.resize(executors.intervals().size());
  if (sends.empty()) return table;
  for (const NeededSend& send : sends) {
    if (send.length <= kLongestPayload) continue;
    return Error{fmt::format("a message of unit {}, event {}, is longer than any that is sent again", send.event.unit,
                             send.event.event),
                 Status::damaged};
  }
  const std::vector<Length> lengths = table->group(std::move(sends), executors);
  TRY(table->lay_out(lengths, keep));
  return table;
}

// Messages with the same sender and receivers lie side by side, in the table and in the bytes, because they are
// released together.
std::vector<PayloadTable::Length> PayloadTable::group(std::vector<NeededSend> sends, const Executors& executors) {
  std::sort(sends.begin(), sends.end(),
            [](const auto& a, const auto& b) { return std::tie(a.event, a.receiver) < std::tie(b.event, b.receiver); });
  std::map<std::pair<std::optional<size_t>, std::vector<uint32_t>>, uint32_t> group_of;
  std::vector<uint32_t> receivers;
  std::vector<Length> lengths;
  for (size_t i = 0; i < sends.size();) {
    const EventRef event = sends[i].event;
    Length length;
    receivers.clear();
    for (; i < sends.size() && sends[i].event == event; ++i) {
      length.bytes = std::max(length.bytes, sends[i].length);
      ++length.uses;
      if (receivers.empty() || receivers.back() != sends[i].receiver) receivers.push_back(sends[i].receiver);
    }
    const auto [group, fresh] = group_of.try_emplace({executors.of(event), receivers}, groups_.size());
    if (fresh) {
      groups_.emplace_back().receivers = receivers.size();
      for (const uint32_t receiver : receivers) receives_[receiver].push_back(group->second);
    }
    ++groups_[group->second].end;
    places_.push_back({event, 0, group->second});
    lengths.push_back(length);
  }
  return lengths;
}

Result<void> PayloadTable::lay_out(const std::vector<Length>& lengths, Keep keep) {
  uint64_t count = 0;
  for (auto& group : groups_) {
    group.first = std::exchange(count, count + group.end);
    group.end = group.first;  // grows again below
  }
  std::vector<Length> in_order(places_.size());
  for (size_t i = 0; i < places_.size(); ++i) {
    places_[i].index = groups_[places_[i].group].end++;
    in_order[places_[i].index] = lengths[i];
  }
  // More than any program has: sums of lengths that a trace states do not wrap around.
  constexpr uint64_t kMostBytes = 1ull << 46;
  uint64_t bytes = 0;
  for (const Length& length : lengths) {
    if (length.bytes > kMostBytes - bytes) {
      return Error{"the messages that are needed are longer than memory can be", Status::damaged};
    }
    bytes += length.bytes;
  }
  const auto bytes_of = [&](const Group& group) {
    uint64_t sum = 0;
    for (uint64_t i = group.first; i < group.end; ++i) sum += in_order[i].bytes;
    return sum;
  };
  for (const Group& group : groups_) {
    if (keep == Keep::until_the_end || bytes_of(group) <= kRingBytes) continue;
    in_rings_.push_back({group.first, group.end});
  }
  rings_ = sizeof(gate::MessagesHeader) + places_.size() * sizeof(gate::Message);
  uint64_t offset = rings_ + in_rings_.size() * sizeof(gate::MessageRing);
  offsets_.reserve(in_order.size() + 1);
  for (const Length& length : in_order) offsets_.push_back(std::exchange(offset, offset + length.bytes));
  offsets_.push_back(offset);
  ring_bytes_ = page_up(offset);
  const uint64_t size = in_rings_.empty() ? offset : ring_bytes_ + in_rings_.size() * kRingBytes;
  ASSIGN_OR_RETURN(shared_, SharedMemory::make("redrive-messages", size, SharedMemory::Tracees::write));
  header().rings = rings_;
  for (uint32_t i = 0; i < in_rings_.size(); ++i) {
    const auto [first, end] = in_rings_[i];
    ring(i).start = ring_bytes_ + i * kRingBytes;
    ring(i).size = kRingBytes;
    ring(i).oldest = first;
    for (uint64_t index = first; index < end; ++index) {
      message(index).ring = i + 1;
      message(index).uses = in_order[index].uses;
    }
  }
  return {};
}

std::optional<uint64_t> PayloadTable::index(EventRef event, Hint& near) const {
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

std::optional<uint64_t> PayloadTable::index(EventRef event) const {
  Hint unknown = 0;
  return index(event, unknown);
}

void PayloadTable::put(uint64_t place, const Bytes& payload) {
  gate::Message& to = message(place);
  to.offset = offsets_[place];
  to.length = payload.size();
  std::copy_n(payload.begin(), std::min<uint64_t>(capacity(place), payload.size()), shared_->data() + offsets_[place]);
  if (state(to).exchange(MessageState::sent) == MessageState::awaited) wake(place);
}

bool PayloadTable::is_sent(uint64_t place) const { return state(message(place)).load() == MessageState::sent; }

std::optional<Bytes> PayloadTable::part(uint64_t place, uint64_t offset, uint64_t length) const {
  const uint64_t there = std::min(std::atomic_ref(message(place).length).load(), capacity(place));
  if (offset > there || length > there - offset) return std::nullopt;
  uint64_t at = std::atomic_ref(message(place).offset).load();
  if (at < ring_bytes_ || at > size() || there > size() - at) at = offsets_[place];
  const uint8_t* first = shared_->data() + at + offset;
  return Bytes(first, first + length);
}

void PayloadTable::end_use(uint64_t place) const {
  const auto its = ring_of(place);
  if (its && gate::end_use(ring(*its), message(place), place)) {
    futex(ring(*its).waits, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

std::optional<uint32_t> PayloadTable::ring_of(uint64_t place) const {
  const auto after = std::upper_bound(in_rings_.begin(), in_rings_.end(), place,
                                      [](uint64_t wanted, const InRing& its) { return wanted < its.first; });
  if (after == in_rings_.begin() || place >= std::prev(after)->end) return std::nullopt;
  return static_cast<uint32_t>(std::prev(after) - in_rings_.begin());
}

void PayloadTable::await(uint64_t place, std::chrono::nanoseconds patience) const {
  gate::Message& wanted = message(place);
  MessageState absent = MessageState::absent;
  state(wanted).compare_exchange_strong(absent, MessageState::awaited);
  const timespec timeout{patience / std::chrono::seconds(1), (patience % std::chrono::seconds(1)).count()};
  futex(wanted.state, FUTEX_WAIT, static_cast<uint32_t>(MessageState::awaited), &timeout);
}

void PayloadTable::wake(uint64_t place) const { futex(message(place).state, FUTEX_WAKE, INT_MAX, nullptr); }

std::span<const PayloadTable::Place> PayloadTable::sent_by(const ExecutedEvents& its) const {
  const auto before = [](const Place& place, EventRef wanted) { return place.event < wanted; };
  const auto first = std::lower_bound(places_.begin(), places_.end(), EventRef{its.unit, its.first}, before);
  const auto end = std::lower_bound(first, places_.end(), EventRef{its.unit, its.end}, before);
  return {first, end};
}

void PayloadTable::interval_starts(const ExecutedEvents& its, int processor) {
  const Lock lock(mutex_);
  for (const Place& place : sent_by(its)) {
    gate::Message& sent = message(place.index);
    sent.processor = static_cast<uint32_t>(processor);
    sent.offset = offsets_[place.index];
    sent.capacity = capacity(place.index);
    Group& group = groups_[place.group];
    if (group.released) continue;
    const uint64_t most = ring_of(place.index) ? kRingBytes - group.held_bytes : capacity(place.index);
    const uint64_t held = std::min(capacity(place.index), most);
    group.held_bytes += held;
    held_bytes_ += held;
  }
}

void PayloadTable::make_room(const ExecutedEvents& its) const {
  constexpr uint64_t kLongest = 256 << 20;
  if (!shared_) return;
  uint64_t most = offsets_.back();
  for (const auto& [first, end] : in_rings_) most -= offsets_[end] - offsets_[first];
  if (most > kLongest) return;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;  // start and end of each message
  for (const Place& place : sent_by(its)) {
    if (!ring_of(place.index)) ranges.emplace_back(offsets_[place.index], offsets_[place.index + 1]);
  }
  std::sort(ranges.begin(), ranges.end());
  for (auto range = ranges.begin(); range != ranges.end();) {
    const uint64_t start = range->first;
    uint64_t end = start;
    for (; range != ranges.end() && range->first == end; ++range) end = range->second;
    if (start < end) shared_->populate(start, end - start);
  }
}

// Only those that read it decide by it whether to spin, so it may change under them.
void PayloadTable::interval_moves(const ExecutedEvents& its, int processor) {
  for (const Place& place : sent_by(its)) {
    std::atomic_ref(message(place.index).processor).store(static_cast<uint32_t>(processor), std::memory_order_relaxed);
  }
}

void PayloadTable::interval_ended(size_t interval) {
  const Lock lock(mutex_);
  for (const uint32_t group : receives_[interval]) {
    if (--groups_[group].receivers == 0) release(group);
  }
}

// Gives back the memory of a group that no interval receives any more, in whole pages. A page that it shares with a
// neighbour is given back when both are released.
void PayloadTable::release(size_t group) {
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
  if (const auto ring = ring_of(its.first)) shared_->clear(ring_bytes_ + *ring * kRingBytes, kRingBytes);
}

size_t PayloadTable::waiting() const { return shared_ ? std::atomic_ref(header().waiting).load() : 0; }

uint64_t PayloadTable::held_bytes() const {
  const Lock lock(mutex_);
  return held_bytes_;
}

}  // namespace redrive
