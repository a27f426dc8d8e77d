// Contents of messages are taken once their receives have been executed.
#include "supervisor/replay/wanted_payloads.h"

#include <map>

#include "tests/unit/unit_test.h"

namespace redrive::wanted_payloads_test {

namespace {

// The payload of a part is its length, as often as that.
Result<Bytes> read(const MessagePart& part) {
  if (part.length == 0) return Error{"it was not sent"};
  return Bytes(part.length, static_cast<uint8_t>(part.length));
}

MessagePart part(uint64_t length) { return {{1, 1}, 0, length, 0}; }

}  // namespace

TEST_CASE("wanted payloads: of receives before an event, once, put together from their parts") {
  WantedPayloads wanted;
  wanted.add(5, {part(1), part(2)});
  wanted.add(9, {part(3)});
  std::map<EventIndex, Bytes> taken;
  const auto take = [&](EventIndex receiver, const Bytes& payload) -> Result<void> {
    CHECK(taken.emplace(receiver, payload).second);
    return {};
  };
  REQUIRE(wanted.take(5, read, take));
  CHECK(taken.empty());
  REQUIRE(wanted.take(6, read, take));
  CHECK_EQ(taken, std::map<EventIndex, Bytes>{{5, {1, 2, 2}}});
  REQUIRE(wanted.take(10, read, take));
  CHECK_EQ(taken.at(9), Bytes{3, 3, 3});
  REQUIRE(wanted.take(100, read, take));
  CHECK_EQ(taken.size(), 2);
}

TEST_CASE("wanted payloads: an error ends it") {
  WantedPayloads wanted;
  wanted.add(5, {part(0)});
  CHECK_FALSE(wanted.take(6, read, [](EventIndex, const Bytes&) -> Result<void> { return {}; }));
}

}  // namespace redrive::wanted_payloads_test
