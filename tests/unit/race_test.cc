// Which message can come first where a unit receives one of several, and where the unit stands for that.
#include "supervisor/live/race.h"

#include "tests/unit/unit_test.h"

namespace redrive::race_test {

namespace {

using Kind = Reception::Kind;

constexpr UnitId kMaster = 1, kFast = 2, kSlow = 3;

Reception reception(Kind kind, EventIndex at, int descriptor = -1) {
  Reception out;
  out.kind = kind;
  out.at = out.entered = at;
  out.descriptor = descriptor;
  return out;
}

Reception receive(EventIndex at, int descriptor, uint64_t channel, EventRef send) {
  Reception out = reception(Kind::receive, at, descriptor);
  out.channel = channel;
  out.sends = {send};
  return out;
}

Delivery delivery(const std::vector<Reception>& receptions, EventIndex at, UnitId sender,
                  const std::vector<Unreceived>& unreceived = {}) {
  const auto found = choose_delivery(receptions, unreceived, {{kMaster, at}, sender});
  REQUIRE_MESSAGE(found, (found ? "" : found.error().message));
  return *found;
}

void check_refused(const std::vector<Reception>& receptions, EventIndex at, UnitId sender, const std::string& words) {
  const auto found = choose_delivery(receptions, {}, {{kMaster, at}, sender});
  REQUIRE_FALSE(found);
  CHECK_MESSAGE(found.error().message.find(words) != std::string::npos, found.error().message);
}

}  // namespace

TEST_CASE("choose_delivery: who reads from one of several descriptors stands before it waits for them") {
  const std::vector<Reception> polled{reception(Kind::wait, 10), receive(11, 4, 1, {kFast, 5}),
                                      reception(Kind::wait, 12), receive(13, 5, 2, {kSlow, 7})};
  const Delivery found = delivery(polled, 11, kSlow);
  CHECK(found.before == EventRef{kMaster, 10});
  CHECK(found.message == EventRef{kSlow, 7});
  CHECK(delivery(polled, 10, kSlow).before == EventRef{kMaster, 10});
  CHECK(delivery(polled, 11, kFast).before == EventRef{kMaster, 11});
  CHECK(delivery(polled, 13, kSlow).message == EventRef{kSlow, 7});
}

TEST_CASE("choose_delivery: one channel of several senders needs no other place") {
  const std::vector<Reception> pipe{reception(Kind::wait, 10), receive(11, 4, 1, {kFast, 5}),
                                    receive(12, 4, 1, {kSlow, 7})};
  CHECK(delivery(pipe, 11, kSlow).before == EventRef{kMaster, 11});
  const std::vector<Reception> datagrams{reception(Kind::wait, 10), receive(11, 4, 0, {kFast, 5}),
                                         receive(12, 4, 0, {kSlow, 7})};
  CHECK(delivery(datagrams, 11, kSlow).before == EventRef{kMaster, 11});
  const std::vector<Reception> two_sockets{reception(Kind::wait, 10), receive(11, 4, 0, {kFast, 5}),
                                           receive(12, 5, 0, {kSlow, 7})};
  CHECK(delivery(two_sockets, 11, kSlow).before == EventRef{kMaster, 10});
}

TEST_CASE("choose_delivery: a call that a thread has entered belongs to its receive") {
  std::vector<Reception> pipe{receive(14, 4, 1, {kFast, 5}), receive(20, 4, 1, {kSlow, 7})};
  pipe[0].entered = 11;
  CHECK(delivery(pipe, 11, kSlow).before == EventRef{kMaster, 11});
  CHECK(delivery(pipe, 14, kSlow).before == EventRef{kMaster, 14});
}

TEST_CASE("choose_delivery: connections are accepted in the other order, if both are still to be accepted") {
  const std::vector<Reception> server{reception(Kind::accept, 10, 6), receive(11, 6, 1, {kFast, 5}),
                                      reception(Kind::accept, 12, 6), receive(13, 6, 2, {kSlow, 7})};
  CHECK(delivery(server, 11, kSlow).before == EventRef{kMaster, 10});
  const std::vector<Reception> both{reception(Kind::wait, 8), reception(Kind::accept, 9, 7),
                                    reception(Kind::accept, 10, 6), receive(11, 6, 1, {kFast, 5}),
                                    receive(13, 7, 2, {kSlow, 7})};
  CHECK(delivery(both, 11, kSlow).before == EventRef{kMaster, 9});
}

TEST_CASE("choose_delivery: who asks without waiting stands right before the receive") {
  const std::vector<Reception> busy{reception(Kind::test, 9, 5), receive(11, 4, 1, {kFast, 5}),
                                    receive(13, 5, 2, {kSlow, 7})};
  CHECK(delivery(busy, 11, kSlow).before == EventRef{kMaster, 11});
}

TEST_CASE("choose_delivery: a message that nobody has received can come first, too") {
  const std::vector<Reception> polled{reception(Kind::wait, 10), receive(11, 4, 1, {kFast, 5})};
  const Delivery found = delivery(polled, 11, kSlow, {{{kSlow, 7}, 2}});
  CHECK(found.before == EventRef{kMaster, 10});
  CHECK(found.message == EventRef{kSlow, 7});
}

TEST_CASE("choose_delivery: refused if nothing is sent, all was received, or there is nothing to choose from") {
  const std::vector<Reception> polled{reception(Kind::wait, 10), receive(11, 4, 1, {kFast, 5}),
                                      reception(Kind::wait, 12), receive(13, 5, 2, {kSlow, 7})};
  check_refused(polled, 11, 4, "unit 4 sends nothing to unit 1");
  check_refused(polled, 13, kFast, "the last of it in event 11");
  const std::vector<Reception> turns{receive(11, 4, 1, {kFast, 5}), receive(13, 5, 2, {kSlow, 7})};
  check_refused(turns, 11, kSlow, "can only receive from another sender in event 11");
}

TEST_CASE("add_delivery: the breakpoint holds the message, unless that depends on what the receiver does there") {
  Communication execution;
  for (UnitId unit = 1; unit <= 3; ++unit) execution.units[unit].events = 20;
  execution.units[kSlow].needs.push_back({4, {kFast, 3}, false});  // a third one comes before the message
  execution.units[kSlow].needs.push_back({9, {kMaster, 12}, false});
  Communication with_message = execution;
  REQUIRE(add_delivery({{kMaster, 10}, {kSlow, 7}}, with_message));
  const auto breakpoint = causal_breakpoint(with_message, {{kMaster, 10}});
  REQUIRE(breakpoint);
  CHECK_EQ(breakpoint->units.at(kMaster).event, 10);
  CHECK_EQ(breakpoint->units.at(kSlow).event, 8);
  CHECK_EQ(breakpoint->units.at(kFast).event, 4);
  const auto late = add_delivery({{kMaster, 10}, {kSlow, 15}}, execution);
  REQUIRE_FALSE(late);
  CHECK_MESSAGE(late.error().message.find("depends on event 12 of unit 1") != std::string::npos, late.error().message);
}

}  // namespace redrive::race_test
