// Where payloads lie, how long they are held, and how parts of them are read; no process is re-driven.
#include "supervisor/replay/payload_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <random>
#include <set>

#include "base/page.h"
#include "interceptors/inprocess/message_ring.h"
#include "interceptors/payload.h"
#include "supervisor/replay/arrival_order.h"
#include "tests/unit/unit_test.h"

namespace redrive::payload_table_test {
using namespace std::chrono_literals;

namespace {

// All that the units send, one after the other.
std::vector<ExecutedEvents> intervals_of(size_t count) {
  std::vector<ExecutedEvents> intervals;
  for (UnitId unit = 1; unit <= count; ++unit) intervals.push_back({unit, 0, 100});
  return intervals;
}

std::unique_ptr<PayloadTable> made(std::vector<NeededSend> sends, const std::vector<ExecutedEvents>& intervals,
                                   PayloadTable::Keep keep = PayloadTable::Keep::until_received) {
  auto table = PayloadTable::make(std::move(sends), Executors(intervals), keep);
  REQUIRE(table);
  return std::move(*table);
}

}  // namespace

TEST_CASE("a table without messages has no memory") {
  const auto table = made({}, intervals_of(2));
  CHECK_EQ(table->size(), 0);
  CHECK_FALSE(table->index({1, 0}));
  table->interval_starts({1, 0, 10}, 0);
  table->interval_ended(0);
  CHECK_EQ(table->held_bytes(), 0);
  CHECK_EQ(table->waiting(), 0);
}

TEST_CASE("messages that are longer than memory are refused, and so are those that are so together") {
  std::vector<NeededSend> sends;
  SUBCASE("none that is recorded is as long") { sends = {{{1, 10}, kLongestPayload + 1, 0}}; }
  SUBCASE("one") { sends = {{{1, 10}, UINT64_MAX - 4095, 0}}; }
  SUBCASE("two, whose sum is 0") { sends = {{{1, 10}, uint64_t{1} << 63, 0}, {{2, 20}, uint64_t{1} << 63, 0}}; }
  const auto table = PayloadTable::make(sends, Executors(intervals_of(3)));
  REQUIRE_FALSE(table);
  CHECK_EQ(table.error().status, Status::damaged);
}

TEST_CASE("what events will send gets its memory, unless the table is very long") {
  constexpr uint64_t kPages = 16, kLong = uint64_t{1} << 32;
  const auto blocks = [](const PayloadTable& table) {
    struct stat info {};
    REQUIRE_EQ(stat(table.path().c_str(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  };
  const NeededSend first{{1, 5}, kPages * kPageSize, 1}, second{{1, 6}, kPages * kPageSize, 1},
      other{{2, 5}, kPageSize, 0};
  const auto table = made({first, second, other}, intervals_of(2));
  const uint64_t before = blocks(*table);
  table->make_room({1, 0, 5});
  CHECK_EQ(blocks(*table), before);
  table->make_room({1, 5, 7});
  CHECK_GE(blocks(*table), before + 2 * kPages * kPageSize);
  CHECK_LE(blocks(*table), before + (2 * kPages + 2) * kPageSize);
  CHECK_FALSE(table->is_sent(*table->index({1, 5})));

  // Messages with the same receivers lie side by side: those of one unit can lie in several places, in any order.
  const uint64_t large = kPages * kPageSize;
  const auto turns =
      made({{{1, 1}, large, 1}, {{1, 2}, large, 0}, {{1, 3}, large, 1}, {{2, 1}, large, 0}}, intervals_of(2));
  const uint64_t empty = blocks(*turns);
  turns->make_room({1, 0, 9});
  CHECK_GE(blocks(*turns), empty + 3 * large);
  CHECK_LE(blocks(*turns), empty + 3 * large + 4 * kPageSize);

  std::vector<NeededSend> long_one{first};
  for (uint32_t i = 0; i < kLong / kLongestPayload; ++i) long_one.push_back({{2, i}, kLongestPayload, 0});
  const auto longer = made(long_one, intervals_of(2), PayloadTable::Keep::until_the_end);
  longer->make_room({1, 0, 10});
  longer->make_room({2, 0, UINT32_MAX});
  CHECK_LE(blocks(*longer), 4 * kPageSize);

  const auto with_ring = made(long_one, intervals_of(2));
  with_ring->make_room({2, 0, 10});
  CHECK_LE(blocks(*with_ring), 4 * kPageSize);
  with_ring->make_room({1, 0, 10});
  CHECK_GE(blocks(*with_ring), kPages * kPageSize);
}

TEST_CASE("only the needed part of a longer message is kept") {
  const auto table = made({{{1, 1}, 4, 1}, {{1, 2}, 4, 1}}, intervals_of(2));
  const uint64_t first = *table->index({1, 1}), second = *table->index({1, 2});
  REQUIRE_NE(first, second);
  table->put(second, Bytes{5, 6, 7, 8});
  CHECK_FALSE(table->is_sent(first));
  table->put(first, Bytes{1, 2, 3, 4, 9, 9});
  CHECK(table->is_sent(first));
  CHECK(table->part(first, 0, 4) == Bytes{1, 2, 3, 4});
  CHECK(table->part(first, 4, 0) == Bytes{});
  CHECK_FALSE(table->part(first, 0, 5));
  CHECK_FALSE(table->part(first, 5, 0));
  CHECK_FALSE(table->part(first, 1, UINT64_MAX));
  CHECK(table->part(second, 0, 4) == Bytes{5, 6, 7, 8});
}

TEST_CASE("a thread that awaits a message is woken when it is put in place") {
  const auto table = made({{{1, 1}, 4, 1}}, intervals_of(2));
  auto waiting = std::async(std::launch::async, [&] {
    while (!table->is_sent(0)) table->await(0, 1h);
    return true;
  });
  table->put(0, Bytes{1});
  CHECK(waiting.get());
  table->await(0, 1h);  // returns at once, because the message is there
}

TEST_CASE("payloads are held until all intervals that receive them have ended") {
  constexpr uint64_t kLength = 1 << 20;
  const std::vector<ExecutedEvents> intervals{{1, 0, 10}, {1, 10, 20}, {2, 0, 10}, {3, 0, 10}};
  const auto owner =
      made({{{1, 1}, kLength, 2}, {{1, 2}, kLength, 3}, {{1, 2}, kLength, 2}, {{1, 12}, kLength, 3}, {{1, 1}, 5, 2}},
           intervals);
  PayloadTable& table = *owner;
  const auto in_memory = [&] {
    struct stat status {};
    REQUIRE_EQ(stat(table.path().c_str(), &status), 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  };
  CHECK_EQ(table.held_bytes(), 0);
  table.interval_starts(intervals[0], 0);
  CHECK_EQ(table.held_bytes(), 2 * kLength);
  table.interval_starts(intervals[1], 0);
  CHECK_EQ(table.held_bytes(), 3 * kLength);
  for (const EventRef event : {EventRef{1, 1}, {1, 2}, {1, 12}}) {
    table.put(*table.index(event), Bytes(kLength, uint8_t(event.event)));
  }
  const uint64_t full = in_memory();
  CHECK_GE(full, 3 * kLength);
  table.interval_ended(2);
  CHECK_EQ(table.held_bytes(), 2 * kLength);
  CHECK_LE(in_memory(), full - kLength + 2 * kPageSize);
  for (const EventRef event : {EventRef{1, 2}, {1, 12}}) {
    CHECK(table.part(*table.index(event), 0, kLength) == Bytes(kLength, uint8_t(event.event)));
  }
  table.interval_ended(0);
  CHECK_EQ(table.held_bytes(), 2 * kLength);
  table.interval_ended(3);
  CHECK_EQ(table.held_bytes(), 0);
  CHECK_LE(in_memory(), 2 * kPageSize);
}

namespace {

// What one interval sends to another one, in messages of this length, through a ring.
struct InRing {
  static constexpr uint64_t kLength = 3 << 20;
  static constexpr EventIndex kCount = 40;
  std::unique_ptr<PayloadTable> table;
  gate::Message* messages = nullptr;
  gate::MessageRing* ring = nullptr;

  explicit InRing(PayloadTable::Keep keep = PayloadTable::Keep::until_received) {
    std::vector<NeededSend> sends;
    for (EventIndex event = 0; event < kCount; ++event) {
      sends.push_back({{1, event}, kLength, 1});
      sends.push_back({{1, event}, kLength / 2, 1});
    }
    table = made(std::move(sends), intervals_of(2), keep);
    table->interval_starts({1, 0, 100}, 0);
    const int file = open(table->path().c_str(), O_RDWR);
    REQUIRE_GE(file, 0);
    data_ = mmap(nullptr, table->size(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    REQUIRE_NE(data_, MAP_FAILED);
    auto* const start = static_cast<uint8_t*>(data_);
    messages = reinterpret_cast<gate::Message*>(start + sizeof(gate::MessagesHeader));
    ring = reinterpret_cast<gate::MessageRing*>(start + reinterpret_cast<gate::MessagesHeader*>(start)->rings);
  }
  ~InRing() { munmap(data_, table->size()); }
  InRing(const InRing&) = delete;

  // As the code inside tracees does.
  bool send(uint64_t place) {
    const bool placed = gate::place_in(*ring, messages, place);
    memset(static_cast<uint8_t*>(data_) + messages[place].offset, static_cast<int>(place), kLength);
    messages[place].length = kLength;
    messages[place].state = gate::MessageState::sent;
    return placed;
  }
  bool holds(uint64_t place) const {
    return table->part(place, 0, kLength) == Bytes(kLength, static_cast<uint8_t>(place));
  }
  uint64_t in_memory() const {
    struct stat status {};
    REQUIRE_EQ(stat(table->path().c_str(), &status), 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  }

 private:
  void* data_ = nullptr;
};

}  // namespace

TEST_CASE("what many bytes lie in is used again once all receives have them") {
  InRing sent;
  REQUIRE_EQ(sent.messages[0].ring, 1);
  for (uint64_t place = 0; place < InRing::kCount; ++place) {
    CHECK(sent.send(place));
    for (uint64_t before = place >= 3 ? place - 3 : 0; before <= place; ++before) CHECK(sent.holds(before));
    if (place < 3) continue;
    sent.table->end_use(place - 3);
    CHECK_EQ(sent.messages[place - 3].uses, 1);  // it has two receives
    sent.table->end_use(place - 3);
    CHECK_EQ(sent.messages[place - 3].uses, 0);
  }
  CHECK_LE(sent.in_memory(), sent.ring->size + 2 * kPageSize);
  sent.table->interval_ended(1);
  CHECK_LE(sent.in_memory(), 2 * kPageSize);
}

TEST_CASE("what finds no room in its ring has a place of its own") {
  InRing sent;
  CHECK_EQ(sent.table->held_bytes(), sent.ring->size);
  const uint64_t fits = sent.ring->size / InRing::kLength;
  for (uint64_t place = 0; place < InRing::kCount; ++place) CHECK_EQ(sent.send(place), place < fits);
  for (uint64_t place = 0; place < InRing::kCount; ++place) CHECK(sent.holds(place));
  CHECK_GE(sent.in_memory(), InRing::kCount * InRing::kLength);
  sent.table->interval_ended(1);
  CHECK_LE(sent.in_memory(), 2 * kPageSize);
}

TEST_CASE("a sender that waits for room is woken when enough was received") {
  InRing sent;
  for (uint64_t place = 0; sent.send(place); ++place) continue;
  sent.ring->awaited = 1;
  sent.ring->waits = 1;
  const auto receive = [&](uint64_t place) {
    sent.table->end_use(place);
    sent.table->end_use(place);
  };
  receive(0);
  CHECK_EQ(sent.ring->waits, 1);
  receive(1);
  CHECK_EQ(sent.ring->waits, 0);
}

TEST_CASE("payloads that are read again are kept, and so are those whose senders' code writes nonsense") {
  const InRing kept(PayloadTable::Keep::until_the_end);
  CHECK_EQ(kept.messages[0].ring, 0);
  InRing sent;
  for (uint64_t place = 0; place < 2; ++place) sent.send(place);
  for (const uint64_t nonsense :
       {uint64_t{0}, sent.ring->start - 1, sent.table->size() - InRing::kLength + 1, sent.table->size(), UINT64_MAX}) {
    sent.messages[1].offset = nonsense;
    CHECK(sent.table->part(1, 0, InRing::kLength) == Bytes(InRing::kLength, 0));  // its own place, which is empty
  }
}

TEST_CASE("whatever order receives come in, messages in a ring do not overlap") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    constexpr uint64_t kCount = 60;
    gate::MessageRing ring{1000, 100, 0, 0, 0, 0, 0};
    std::vector<gate::Message> table(kCount);
    std::vector<uint64_t> held;
    for (uint64_t place = 0; place < kCount; ++place) {
      table[place] = {gate::MessageState::absent, 0, 0, random() % 40, 7, 1, 1};
      if (gate::place_in(ring, table.data(), place)) held.push_back(place);
      for (const uint64_t a : held) {
        const bool inside = gate::is_in(ring, table[a]) || table[a].capacity == 0;
        CHECK(inside);
        CHECK_LE(table[a].offset + table[a].capacity, ring.start + ring.size);
        for (const uint64_t b : held) {
          if (a >= b || table[a].capacity == 0 || table[b].capacity == 0) continue;
          const bool apart = table[a].offset + table[a].capacity <= table[b].offset ||
                             table[b].offset + table[b].capacity <= table[a].offset;
          REQUIRE(apart);
        }
      }
      while (!held.empty() && random() % 2 == 0) {
        const auto taken = held.begin() + static_cast<ptrdiff_t>(random() % std::min<size_t>(held.size(), 3));
        gate::end_use(ring, table[*taken], *taken);
        held.erase(taken);
      }
    }
  }
}

TEST_CASE("an event is found from any place before") {
  std::vector<NeededSend> sends;
  for (EventIndex event = 0; event < 100; event += 3) sends.push_back({{1, event}, 1, 1});
  for (EventIndex event = 0; event < 100; event += 7) sends.push_back({{2, event}, 1, 0});
  const auto table = made(sends, intervals_of(2));
  std::set<uint64_t> indices;
  for (PayloadTable::Hint near = 0; near < 60; ++near) {
    for (const UnitId unit : {1, 2, 3}) {
      for (EventIndex event = 0; event < 102; ++event) {
        PayloadTable::Hint hint = near;
        const auto index = table->index({unit, event}, hint);
        REQUIRE_EQ(index.has_value(), event < 100 && ((unit == 1 && event % 3 == 0) || (unit == 2 && event % 7 == 0)));
        if (index) indices.insert(*index);
      }
    }
  }
  CHECK_EQ(indices.size(), sends.size());
}

TEST_CASE("arrivals have their turn in the order of their numbers") {
  ArrivalOrder order;
  CHECK_FALSE(order.is_kept());
  CHECK_FALSE(order.is_turn(0));
  order.keep({7, 3, 5});
  CHECK(order.is_kept());
  for (const uint64_t arrival : {3, 5, 7}) {
    for (const uint64_t other : {0, 3, 5, 7, 8}) CHECK_EQ(order.is_turn(other), other == arrival);
    order.take(arrival);
  }
  CHECK_FALSE(order.is_turn(7));
  order.keep({9});
  CHECK(order.is_turn(9));
  CHECK(order.taken() == std::vector<uint64_t>{3, 5, 7});
  CHECK_FALSE(order.is_broken());
  order.break_off();
  CHECK(order.is_broken());
}

}  // namespace redrive::payload_table_test
