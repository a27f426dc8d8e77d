// The encoding of events: decoding gives what was encoded, and nothing else can be decoded.
#include <limits>

#include "logstore/event_block.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

namespace redrive::logstore_event_test {

namespace {

Bytes encoded(const std::vector<Event>& events) {
  RowWriter out;
  for (const Event& event : events) encode(event, out);
  return out.block();
}
Bytes encoded(const Event& event) { return encoded(std::vector<Event>{event}); }

RecordHeader header_of(size_t events) {
  RecordHeader header;
  header.type = RecordType::event_rows;
  header.first_item = 100;
  header.items = static_cast<uint32_t>(events);
  return header;
}

// Nothing if the block is not one of so many events.
std::optional<std::vector<Event>> decoded(const Bytes& data, size_t events = 1) {
  EventBlock block;
  REQUIRE(block.open(header_of(events), data));
  std::vector<Event> back;
  while (!block.at_end()) {
    if (!block.next(back.emplace_back())) return std::nullopt;
  }
  return back;
}

// As the events of a unit are: from few places, each with few values that change.
std::vector<Event> similar_events(uint64_t seed, size_t count) {
  sample::Values values(seed);
  std::vector<Event> places;
  for (int i = 0; i < 5; ++i) places.push_back(sample::event(values));
  std::vector<Event> events;
  for (size_t i = 0; i < count; ++i) {
    Event event = places[values.below(places.size())];
    const uint64_t changes = values.below(4);
    for (uint64_t n = 0; n < changes; ++n) {
      const Event other = sample::event(values);
      switch (values.below(8)) {
        case 0:
          event.args[values.below(6)] = values.any();
          break;
        case 1:
          event.result = other.result;
          break;
        case 2:
          event.regs_hash = other.regs_hash;
          break;
        case 3:
          event.writes = other.writes;
          break;
        case 4:
          event.receive = other.receive;
          break;
        case 5:
          event.in_hash = other.in_hash;
          break;
        case 6:
          event.send = other.send;
          break;
        default:
          event.thread = other.thread;
      }
    }
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace

TEST_CASE("a cleared event is as a new one") {
  sample::Values values(11);
  for (int i = 0; i < 300; i++) {
    Event event = sample::event(values);
    event.clear();
    CHECK(event == Event{});
  }
}

TEST_CASE("an event is what its encoding says") {
  sample::Values values(1);
  for (int i = 0; i < 2000; i++) {
    const Event event = sample::event(values);
    const auto back = decoded(encoded(event));
    REQUIRE(back);
    CHECK(back->front() == event);
  }
}

TEST_CASE("events that resemble each other are what their encoding says") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto events = similar_events(seed, 1 + 40 * seed);
    const auto back = decoded(encoded(events), events.size());
    REQUIRE(back);
    CHECK(*back == events);
  }
}

TEST_CASE("extreme values survive, also beside others") {
  Event event;
  event.number = std::numeric_limits<int32_t>::min();
  event.args.fill(UINT64_MAX);
  event.result = std::numeric_limits<int64_t>::min();
  event.repeat = 0;
  event.cycle = kLongestCycle;
  event.thread = UINT32_MAX;
  event.ip = UINT64_MAX;
  event.writes.push_back({UINT64_MAX, (uint64_t{1} << 62) - 1, MemoryWrite::Kind::message, {}});
  event.writes.push_back({0, 0, MemoryWrite::Kind::data, {}});
  event.receive = Receive{UINT64_MAX, UINT64_MAX, UINT64_MAX, true, {{{UINT32_MAX, UINT64_MAX}, 1, 2, UINT64_MAX}}};
  event.send = Send{0, UINT64_MAX, 0};
  Event other = event;
  other.result = std::numeric_limits<int64_t>::max();
  other.args.fill(uint64_t{1} << 63);
  other.args[0] = event.args[0];
  other.receive->arrival = other.receive->parts[0].sender.event = 0;
  other.send->at_ns = uint64_t{1} << 63;
  const std::vector<Event> events{event, other, event, Event(), other};
  const auto back = decoded(encoded(events), events.size());
  REQUIRE(back);
  CHECK(*back == events);
}

TEST_CASE("events of any length and from any number of places survive") {
  std::vector<Event> events;
  for (uint64_t i = 0; i < 2000; ++i) {
    Event event;
    event.ip = i * i % 701;
    event.args[0] = i % 3;
    event.result = static_cast<int64_t>(i);
    const MemoryWrite write{i, 3, MemoryWrite::Kind::data, Bytes(3, static_cast<uint8_t>(i))};
    if (i % 100 == 0) event.writes.assign(i, write);
    events.push_back(event);
  }
  const auto back = decoded(encoded(events), events.size());
  REQUIRE(back);
  CHECK(*back == events);
}

TEST_CASE("an event that is as expected takes a byte") {
  Event read;
  read.result = 64;
  read.args = {3, 0x7ffe'1234'5678, 64, 0, 0, 0};
  read.ip = 0x7f00'1234'5678;
  read.regs_hash = RegistersHash::of_call(0x12345678);
  read.writes.push_back({0x7ffe'1234'5678, 64, MemoryWrite::Kind::message, {}});
  std::vector<Event> events;
  const auto add = [&](size_t count) {
    for (; count > 0; --count) {
      const uint64_t i = events.size();
      read.receive = Receive{4, 7 + 2 * i, 1000 + 300 * i, false, {{{2, 5 + 3 * i}, 0, 64, 99}}};
      events.push_back(read);
    }
    return encoded(events).size();
  };
  const size_t first = add(1);
  CHECK(first <= 100);
  const size_t few = add(3);
  CHECK(add(1000) <= few + 1002);
  read.result = 32;  // and what follows from it
  read.writes[0].length = 32;
  const size_t many = add(0);
  read.receive =
      Receive{4, 7 + 2 * events.size(), 1000 + 300 * events.size(), false, {{{2, 5 + 3 * events.size()}, 0, 32, 99}}};
  events.push_back(read);
  CHECK(encoded(events).size() <= many + 6);
}

TEST_CASE("an encoding cut short anywhere is not that many events") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto events = similar_events(seed, 20);
    const Bytes data = encoded(events);
    for (size_t size = 0; size < data.size(); size++) {
      CHECK_FALSE(decoded(Bytes(data.begin(), data.begin() + static_cast<ptrdiff_t>(size)), events.size()));
    }
    CHECK_FALSE(decoded(data, events.size() - 1));
    CHECK_FALSE(decoded(data, events.size() + 1));
  }
}

TEST_CASE("a block can be read again from its first event") {
  const auto events = similar_events(3, 50);
  EventBlock block;
  REQUIRE(block.open(header_of(events.size()), encoded(events)));
  for (const size_t count : {size_t{50}, size_t{20}, size_t{50}}) {
    block.rewind();
    for (size_t i = 0; i < count; ++i) {
      Event event;
      CHECK_EQ(block.next_item(), 100 + i);
      REQUIRE(block.next(event));
      CHECK(event == events[i]);
    }
  }
  CHECK(block.at_end());
}

TEST_CASE("a record of another type holds no events") {
  RecordHeader header = header_of(1);
  header.type = RecordType::pages;
  EventBlock block;
  CHECK_FALSE(block.open(header, encoded(Event())));
  CHECK_FALSE(block.holds(header));
}

TEST_CASE("a preemption is encoded whole, in few bytes") {
  Event event;
  event.kind = EventKind::preemption;
  event.thread = 2;
  event.ip = 0x5555'5555'1234;
  event.regs_hash = RegistersHash::whole(0x12345678);
  event.args[0] = static_cast<uint64_t>(Preempted::turn);
  const Bytes data = encoded(event);
  CHECK(data.size() <= 30);
  const auto back = decoded(data);
  REQUIRE(back);
  CHECK(back->front() == event);
}

TEST_CASE("unknown kinds and flags are not events") {
  for (const uint64_t flags : {uint64_t{6}, uint64_t{7}, uint64_t{1} << 20, uint64_t{1} << 22,
                               (uint64_t{1} << 7) | (uint64_t{1} << 21), UINT64_MAX}) {
    RowWriter out;
    out.begin(1, 1);
    out.u(flags);
    for (int i = 0; i < 100; i++) out.u(0);
    out.end();
    const Bytes block = out.block();
    RowReader in(block);
    Event event;
    CHECK_FALSE(decode(in, event));
  }
}

}  // namespace redrive::logstore_event_test
