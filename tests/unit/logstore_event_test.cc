// The encoding of events: decoding gives what was encoded, and nothing else can be decoded.
#include <limits>

#include "logstore/event.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

using namespace redrive;

namespace {

Bytes encoded(const Event& event) {
  Encoder out;
  encode(event, out);
  return out.take();
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
    const Bytes data = encoded(event);
    Decoder in(data);
    Event back;
    REQUIRE(decode(in, back));
    CHECK(in.at_end());
    CHECK(back == event);
  }
}

TEST_CASE("extreme values survive") {
  Event event;
  event.number = std::numeric_limits<int32_t>::min();
  event.args.fill(UINT64_MAX);
  event.result = std::numeric_limits<int64_t>::min();
  event.repeat = 0;
  event.cycle = kLongestCycle;
  event.thread = UINT32_MAX;
  event.writes.push_back({UINT64_MAX, (uint64_t{1} << 62) - 1, MemoryWrite::Kind::message, {}});
  event.writes.push_back({0, 0, MemoryWrite::Kind::data, {}});
  event.receive = Receive{UINT64_MAX, UINT64_MAX, UINT64_MAX, true, {{{UINT32_MAX, UINT64_MAX}, 1, 2, UINT64_MAX}}};
  const Bytes data = encoded(event);
  Decoder in(data);
  Event back;
  REQUIRE(decode(in, back));
  CHECK(back == event);
}

TEST_CASE("fields that have their default cost nothing") {
  CHECK_EQ(encoded(Event{}).size(), 2);
  Event read;
  read.result = 64;
  read.args = {3, 0x7ffe'1234'5678, 64, 0, 0, 0};
  read.ip = 0x7f00'1234'5678;
  read.regs_hash = 0x12345678;
  read.writes.push_back({0x7ffe'1234'5678, 64, MemoryWrite::Kind::data, Bytes(64)});
  CHECK(encoded(read).size() <= 64 + 40);
}

TEST_CASE("an encoding cut short anywhere is not an event") {
  sample::Values values(2);
  for (int i = 0; i < 200; i++) {
    const Bytes data = encoded(sample::event(values));
    for (size_t size = 0; size < data.size(); size++) {
      Decoder in{std::span(data).first(size)};
      Event event;
      CHECK_FALSE(decode(in, event));
    }
  }
}

TEST_CASE("a preemption is encoded whole, in few bytes") {
  Event event;
  event.kind = EventKind::preemption;
  event.thread = 2;
  event.ip = 0x5555'5555'1234;
  event.regs_hash = 0x12345678;
  event.args[0] = static_cast<uint64_t>(Preempted::turn);
  const Bytes data = encoded(event);
  CHECK(data.size() <= 20);
  Decoder in(data);
  Event read;
  CHECK(decode(in, read));
  CHECK(read == event);
}

TEST_CASE("unknown kinds and flags are not events") {
  for (const uint64_t flags : {uint64_t{6}, uint64_t{7}, uint64_t{1} << 20, uint64_t{1} << 21, UINT64_MAX}) {
    Encoder out;
    out.u(flags);
    for (int i = 0; i < 100; i++) out.u(0);
    Decoder in(out.data());
    Event event;
    CHECK_FALSE(decode(in, event));
  }
}
