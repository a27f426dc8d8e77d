// Events as the code inside tracees finds them in its ring.
#include "supervisor/replay/ring_entry.h"

#include <sys/syscall.h>

#include <cstring>

#include "tests/unit/unit_test.h"

namespace redrive::ring_entry_test {

namespace {

constexpr size_t kRoom = 1024;

struct Ring {
  alignas(8) std::array<uint8_t, kRoom> bytes{};

  template <typename T>
  T at(uint64_t offset) const {
    T value;
    REQUIRE_LE(offset + sizeof value, bytes.size());
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }
  std::optional<uint64_t> put(const Event& event, const RingEntry& entry, uint64_t start = 0) {
    const bool trap = event.kind == EventKind::trap;
    return put_entry(bytes, start, event, trap ? nullptr : find_row(event.number, event.args), entry);
  }
};

Event read_call(std::array<uint64_t, 6> args, int64_t result) {
  Event event;
  event.number = SYS_read;
  event.args = args;
  event.ip = 0x400002;
  event.result = result;
  return event;
}

bool fits(const Event& event, bool shows_sends = false) {
  const SyscallRow* const row = event.kind == EventKind::syscall ? find_row(event.number, event.args) : nullptr;
  return fits_ring(event, row, shows_sends);
}

}  // namespace

TEST_CASE("ring entry: a call with what the kernel wrote") {
  Event event = read_call({3, 0x5000, 10}, 3);
  event.regs_hash = RegistersHash::of_call(0x1007);
  event.repeat = 4;
  event.writes.push_back({0x5000, 3, MemoryWrite::Kind::data, {'a', 'b', 'c'}});
  Ring ring;
  const auto end = ring.put(event, {0x1234, std::nullopt, {}, {}}, 16);
  const uint64_t size = sizeof(gate::Expected) + sizeof(gate::Output) + 8;
  REQUIRE_EQ(end, 16 + size);
  const auto expected = ring.at<gate::Expected>(16);
  CHECK_EQ(expected.size, size);
  CHECK_EQ(expected.own_size, size);
  CHECK_EQ(expected.number, SYS_read);
  CHECK_EQ(expected.site, 0x1234);
  CHECK_EQ(expected.args[1], 0x5000);
  CHECK_EQ(expected.arguments, 3);
  CHECK_EQ(expected.result, 3);
  CHECK_EQ(expected.repeat, 4);
  CHECK_EQ(expected.regs_mask, RegistersHash::kShort);
  CHECK_EQ(expected.regs_hash, 7);
  CHECK_EQ(expected.sends, 0);
  CHECK_EQ(expected.outputs, 1);
  const auto output = ring.at<gate::Output>(16 + sizeof expected);
  CHECK_EQ(output.address, 0x5000);
  CHECK_EQ(output.length, 3);
  CHECK_EQ(output.from_message, 0);
  CHECK_EQ(ring.at<char>(16 + sizeof expected + sizeof output + 2), 'c');
}

TEST_CASE("ring entry: a received message, whose parts are found in the store's table") {
  Event event = read_call({3, 0x5000, 10}, 6);
  event.receive.emplace();
  event.writes.push_back({0x5000, 6, MemoryWrite::Kind::message, {}});
  Ring ring;
  const std::vector<gate::Part> parts{{2, 0, 4, 11}, {5, 1, 2, 12}};
  REQUIRE(ring.put(event, {0, 8, parts, {}}));
  const auto expected = ring.at<gate::Expected>(0);
  CHECK_EQ(expected.sends, 9);
  CHECK_EQ(expected.parts, 2);
  CHECK_EQ(ring.at<gate::Part>(sizeof expected + sizeof(gate::Part)).message, 5);
  CHECK_EQ(ring.at<gate::Output>(sizeof expected + 2 * sizeof(gate::Part)).from_message, 1);
  event.writes.front().length = 7;  // a trace can say anything
  CHECK_FALSE(ring.put(event, {0, std::nullopt, parts, {}}));
}

TEST_CASE("ring entry: calls to be made in its place") {
  Event event;
  event.number = SYS_munmap;
  event.args = {0x5000, 0x1000};
  const std::vector<gate::InjectedCall> calls{{SYS_munmap, {0x5000, 0x1000}}};
  Ring ring;
  REQUIRE(ring.put(event, {0, std::nullopt, {}, calls}));
  CHECK_EQ(ring.at<gate::Expected>(0).calls, 1);
  CHECK_EQ(ring.at<gate::InjectedCall>(sizeof(gate::Expected)).args[1], 0x1000);
}

TEST_CASE("ring entry: nothing is put where there is no room") {
  Event event = read_call({3, 0x5000, 10}, 3);
  Ring ring;
  CHECK_FALSE(ring.put(event, {}, kRoom - sizeof(gate::Expected) + 1));
  CHECK_EQ(ring.at<uint64_t>(kRoom - sizeof(uint64_t)), 0);
  CHECK(ring.put(event, {}, kRoom - sizeof(gate::Expected)));
}

TEST_CASE("ring entry: an instruction that traps") {
  Event event;
  event.kind = EventKind::trap;
  event.number = static_cast<int32_t>(Trap::rdtscp);
  event.ip = 0x400000;
  CHECK(fits(event));
  CHECK(kind_of(event) == SiteKind::rdtscp);
  CHECK_EQ(site_of(event), 0x400000);
  CHECK_EQ(site_of(read_call({}, 0)), 0x400000);  // the instruction before
  Ring ring;
  REQUIRE(ring.put(event, {}));
  CHECK_EQ(ring.at<gate::Expected>(0).number, gate::kTrapNumber);
}

TEST_CASE("ring entry: what must stop") {
  const Event plain = read_call({3, 0x5000, 10}, 3);
  CHECK(fits(plain));
  Event event = plain;
  event.fatal = true;
  CHECK_FALSE(fits(event));
  event = plain;
  event.result = -512;  // a signal came before the kernel did anything
  CHECK_FALSE(fits(event));
  event = plain;
  event.kind = EventKind::signal;
  CHECK_FALSE(fits(event));
  event = plain;
  event.changes.emplace_back();
  CHECK_FALSE(fits(event));
  event = plain;
  event.number = SYS_fork;
  CHECK_FALSE(fits(event));
  event = plain;
  event.number = SYS_write;
  CHECK(fits(event));
  CHECK_FALSE(fits(event, true));  // it is to be shown
}

}  // namespace redrive::ring_entry_test
