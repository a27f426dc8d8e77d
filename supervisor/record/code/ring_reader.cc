#include "supervisor/record/code/ring_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "supervisor/tier/gate.h"

namespace redrive {
namespace {

const uint8_t* ring_of(const gate::Slot& slot) { return ring(const_cast<gate::Slot&>(slot)); }

// The last complete record between two places in the ring; null if there is none, or the program has written there.
gate::Record* last_record(gate::Slot& slot, uint64_t from, uint64_t head) {
  const uint64_t at = read_once(slot.last);
  if (at < from || at >= head || head - at < sizeof(gate::Record)) return nullptr;
  auto* const record = reinterpret_cast<gate::Record*>(ring(slot) + at);
  return read_once(record->size) == head - at ? record : nullptr;
}

}  // namespace

// ---- Stretches

std::vector<uint64_t> RingStretch::calls_before(std::span<const uint64_t> places) const {
  std::vector<uint64_t> counts;
  uint64_t calls = 0;
  for (uint64_t at = 0; complete_ - at >= sizeof(gate::Record);) {
    const auto& record = *reinterpret_cast<const gate::Record*>(at_ + at);
    const uint64_t size = read_once(record.size);
    if (size < sizeof record || size > complete_ - at) break;
    at += size;
    while (counts.size() < places.size() && places[counts.size()] < at) counts.push_back(calls);
    calls += read_once(record.repeat) & ~gate::kTaken;
  }
  counts.resize(places.size(), calls);
  return counts;
}

void RingStretch::move_to(uint8_t* place) {
  std::memcpy(place, at_, bytes());
  at_ = place;
}

RingStretch::Next RingStretch::next() {
  if (complete_) {
    at_ += size_;
    complete_ -= size_;
  } else if (size_) {
    unfinished_ = 0;
  }
  size_ = 0;
  const uint64_t available = complete_ ? complete_ : unfinished_;
  if (available == 0) return Next::end;
  if (split(available)) return Next::record;
  drop();
  return Next::broken;
}

// Splits a record into its pieces of memory.
bool RingStretch::split(uint64_t available) {
  const gate::Record& its = record();
  if (available < sizeof its) return false;
  // One without a result may get it meanwhile.
  const uint64_t size = complete() ? read_once(its.size) : available;
  stamp_ = read_once(its.stamp);
  thread_ = read_once(its.thread);
  read_ = read_once(its.before);
  const uint64_t count = uint64_t{read_} + (complete() ? read_once(its.after) : 0);
  if (size < sizeof its || size > available) return false;
  pieces_.clear();
  uint64_t at = sizeof its;
  for (uint64_t i = 0; i < count; ++i) {
    if (size - at < sizeof(gate::Piece)) return false;
    const auto& piece = *reinterpret_cast<const gate::Piece*>(at_ + at);
    const uint64_t length = read_once(piece.length);
    at += sizeof piece;
    if (length > size - at) return false;
    pieces_.push_back({read_once(piece.address), {at_ + at, length}});
    at = std::min(size, at + gate::padded(length));
  }
  size_ = size;
  return true;
}

// ---- Rings

// Threads may run meanwhile. The clock is read before this, and what has a later stamp is left for the next time: a
// send has its stamp, and can be seen here, before its bytes can be received. So what is taken of all rings has the
// sends of all that it receives.
RingReader::Taken RingReader::take(gate::Slot& slot, uint64_t now) {
  uint64_t head = read_once(slot.head);
  bool unfinished = false;
  for (uint64_t again = head;; head = again) {
    unfinished = read_once(slot.pending) == head + 1 && !(entry_taken_ && head == taken_);
    again = read_once(slot.head);
    if (again == head) break;
  }
  if (head == taken_ && !unfinished) return Nothing{};
  if (head > gate::kRingSize || taken_ > head) return Broken{};
  const uint8_t* const first = ring(slot) + taken_;
  const uint8_t* const end = ring(slot) + head;
  const uint8_t* at = first;
  gate::Record* last = last_record(slot, taken_, head);
  if (last && read_once(last->stamp) <= now) {
    last_stamp_ = read_once(last->stamp);
    at = end;
  } else {
    last = nullptr;
  }
  while (at < end) {
    const auto& record = *reinterpret_cast<const gate::Record*>(at);
    const auto available = static_cast<uint64_t>(end - at);
    const uint64_t size = available < sizeof record ? 0 : read_once(record.size);
    if (size < sizeof record || size > available) return Broken{};
    const uint64_t stamp = read_once(record.stamp);
    if (stamp > now) break;
    last_stamp_ = stamp;
    last = reinterpret_cast<gate::Record*>(ring(slot) + (at - ring(slot)));
    at += size;
  }
  // What continues its series from now on is a record of its own.
  if (last) __atomic_fetch_or(&last->repeat, gate::kTaken, __ATOMIC_SEQ_CST);
  RingStretch stretch(first, static_cast<uint64_t>(at - first), 0);
  // Its stamp tells whether it has no result yet, or has got it right now: then an older record follows it.
  const uint64_t room = gate::kRingSize - head;
  if (unfinished && at == end && room >= sizeof(gate::Record)) {
    const auto& record = *reinterpret_cast<const gate::Record*>(end);
    const uint64_t stamp = read_once(record.stamp);
    if (stamp > last_stamp_ && stamp <= now) {
      stretch.unfinished_ = std::min<uint64_t>(read_once(record.size), room);
    }
  }
  taken_ += stretch.complete_;
  if (stretch.complete_) stretch.begun_ = std::exchange(entry_taken_, false);
  if (stretch.unfinished_) entry_taken_ = true;
  if (stretch.bytes() == 0) return Nothing{};
  return stretch;
}

void RingReader::empty(gate::Slot& slot) {
  if (slot.phase == gate::Phase::outside && !slot.pending && slot.head == taken_) slot.head = taken_ = 0;
}

std::optional<RingStretch> RingReader::take_entry(const gate::Slot& slot) {
  if (std::exchange(entry_taken_, false)) return {};
  return RingStretch(ring_of(slot) + taken_, 0, gate::kRingSize - std::min(taken_, gate::kRingSize));
}

std::optional<RingStretch> RingReader::current(const gate::Slot& slot) {
  const uint64_t head = slot.head;
  if (head > gate::kRingSize - sizeof(gate::Record)) return {};
  return RingStretch(ring_of(slot) + head, 0, gate::kRingSize - head);
}

// ---- Copies

void StretchCopies::begin_batch() {
  std::swap(copies_, other_copies_);
  if (!copies_) copies_ = std::make_unique_for_overwrite<uint8_t[]>(kMost);
  next_ = copies_.get();
}

void StretchCopies::add(RingStretch& stretch) {
  stretch.move_to(next_);
  next_ += gate::padded(stretch.bytes());
}

}  // namespace redrive
