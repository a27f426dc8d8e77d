// Payloads that wait for a decision: in memory, in the file, and those for which there is no room.
#include "supervisor/record/messages/held_payloads.h"

#include <filesystem>
#include <random>
#include <set>

#include "tests/unit/unit_test.h"

namespace redrive::held_payloads_test {

namespace {

constexpr HeldPayloads::Limits kSmall{1000, 300, 500, 4};

Bytes payload(uint64_t ticket, size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(ticket * 31 + i);
  return bytes;
}

HeldPayload held(uint64_t ticket, size_t size) { return {{1, ticket + 100}, payload(ticket, size)}; }

void check_whole(const HeldPayload& found, size_t size) {
  const uint64_t ticket = found.receiver.event - 100;
  CHECK(found.bytes == payload(ticket, size));
}

}  // namespace

TEST_CASE("held payloads: what is settled comes back if it is kept, from memory or the file") {
  HeldPayloads payloads("/tmp", kSmall);
  for (uint64_t ticket = 0; ticket < 20; ++ticket) CHECK(payloads.add(ticket, held(ticket, 100)).empty());
  for (uint64_t ticket = 0; ticket < 20; ++ticket) {
    CAPTURE(ticket);
    const bool keep = ticket % 2 == 0;
    const auto found = payloads.settle({ticket, keep});
    REQUIRE_EQ(found.has_value(), keep);
    if (found) check_whole(*found, 100);
    CHECK_FALSE(payloads.settle({ticket, true}));
  }
}

TEST_CASE("held payloads: what there is no room for is kept, the oldest in memory first; settled room is used again") {
  HeldPayloads payloads("/tmp", kSmall);
  std::mt19937_64 random(7);
  std::set<uint64_t> waiting;
  uint64_t ticket = 0, too_many = 0, from_file = 0;
  const auto size_of = [](uint64_t of) { return 1 + of % 250; };
  for (int round = 0; round < 200; ++round) {
    for (uint64_t more = random() % 30; more > 0; --more, ++ticket) {
      waiting.insert(ticket);
      for (const auto& kept : payloads.add(ticket, held(ticket, size_of(ticket)))) {
        ++too_many;
        CHECK_EQ(waiting.erase(kept.receiver.event - 100), 1);
        check_whole(kept, size_of(kept.receiver.event - 100));
      }
    }
    for (uint64_t some = random() % 40; some > 0 && !waiting.empty(); --some) {
      const uint64_t oldest = *waiting.begin();
      waiting.erase(oldest);
      const auto found = payloads.settle({oldest, true});
      REQUIRE(found);
      check_whole(*found, size_of(oldest));
      ++from_file;
    }
  }
  CHECK_GT(too_many, 0);
  CHECK_GT(from_file, 100);
}

TEST_CASE("held payloads: where there is no file, what does not fit into memory is kept") {
  HeldPayloads payloads("/tmp/redrive-is-not-there", kSmall);
  size_t kept = 0;
  for (uint64_t ticket = 0; ticket < 20; ++ticket) {
    for (const auto& one : payloads.add(ticket, held(ticket, 100))) {
      check_whole(one, 100);
      ++kept;
    }
  }
  CHECK_EQ(kept, 10);
}

}  // namespace redrive::held_payloads_test
