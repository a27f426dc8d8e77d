// What a unit sends and receives, beside the store that all of a replay share.
#include "supervisor/replay/unit_messages.h"

#include <xxhash.h>

#include "tests/unit/unit_test.h"

namespace redrive::unit_messages_test {

namespace {

constexpr UnitId kSender = 1, kReceiver = 2;
constexpr EventIndex kFirst = 4, kSecond = 9;

Bytes bytes(std::string_view text) { return Bytes(text.begin(), text.end()); }

std::unique_ptr<MessageStore> store() {
  auto made = MessageStore::make({{kSender, 0, 10}, {kReceiver, 0, 10}},
                                 {{{kSender, kFirst}, 5, 1}, {{kSender, kSecond}, 5, 1}}, {});
  REQUIRE(made);
  for (size_t i = 0; i < 2; ++i) (*made)->interval_starts(i, 0);
  return std::move(*made);
}

MessagePart part(EventIndex sender, uint64_t offset, std::string_view text) {
  return {{kSender, sender}, offset, text.size(), XXH3_64bits(text.data(), text.size())};
}

Receive receive(std::vector<MessagePart> parts) {
  Receive of;
  of.parts = std::move(parts);
  return of;
}

}  // namespace

TEST_CASE("unit messages: what is received is put together from parts of what was sent") {
  const auto shared = store();
  UnitMessages sends(kSender, *shared), receives(kReceiver, *shared);
  sends.publish(kFirst, bytes("hello"));
  sends.publish(kSecond, bytes("world"));
  const auto message = receives.received(receive({part(kFirst, 3, "lo"), part(kSecond, 0, "wor")}));
  REQUIRE(message);
  REQUIRE(std::holds_alternative<Bytes>(*message));
  CHECK_EQ(std::get<Bytes>(*message), bytes("lowor"));
}

TEST_CASE("unit messages: other contents say what was recorded, and what came") {
  const auto shared = store();
  UnitMessages(kSender, *shared).publish(kFirst, bytes("hullo"));
  MessagePart wanted = part(kFirst, 0, "hello");
  wanted.hash = 0x123;
  const auto message = UnitMessages(kReceiver, *shared).received(receive({wanted}));
  REQUIRE(message);
  REQUIRE(std::holds_alternative<OtherContents>(*message));
  const auto& [expected, found] = std::get<OtherContents>(*message);
  CHECK_EQ(expected, "a message of 5 bytes from event 4 of unit 1 with content hash 0x123");
  CHECK(found.starts_with("content hash 0x"));
}

TEST_CASE("unit messages: a sender that has ended without it is an error") {
  const auto shared = store();
  shared->interval_ended(0, std::nullopt);
  CHECK_FALSE(UnitMessages(kReceiver, *shared).received(receive({part(kFirst, 0, "hello")})));
}

TEST_CASE("unit messages: places in the store's table, for those that an interval needs") {
  const auto shared = store();
  UnitMessages sends(kSender, *shared), receives(kReceiver, *shared);
  CHECK_FALSE(sends.sent_by(kFirst + 1));
  const auto first = sends.sent_by(kFirst), second = sends.sent_by(kSecond);
  REQUIRE(first);
  REQUIRE(second);
  const auto places = receives.places_of(receive({part(kSecond, 1, "or"), part(kFirst, 0, "h")}));
  REQUIRE(places);
  REQUIRE_EQ(places->size(), 2);
  CHECK_EQ((*places)[0].message, *second);
  CHECK_EQ((*places)[0].offset, 1);
  CHECK_EQ((*places)[0].length, 2);
  CHECK_EQ((*places)[1].message, *first);
  CHECK_FALSE(receives.places_of(receive({part(kFirst, 0, "h"), part(kFirst + 1, 0, "x")})));
}

}  // namespace redrive::unit_messages_test
