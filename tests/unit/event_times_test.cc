// Times of events in their records: each event's bounds hold, whatever is merged, and nothing else can be decoded.
#include "logstore/event_times.h"

#include <random>

#include "logstore/wall_clock.h"
#include "tests/unit/unit_test.h"

namespace redrive::event_times_test {

namespace {

constexpr uint64_t kMicrosecond = 1000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;

EventTime exactly(uint64_t ns) { return {ns, ns, 0}; }

Bytes written(const std::vector<EventTime>& times) {
  TimesWriter writer;
  for (const EventTime& time : times) writer.add(time);
  return writer.block();
}

// Nothing if the block is not one of so many events.
std::optional<std::vector<EventTime>> read(const Bytes& block, size_t events) {
  TimesReader reader(block);
  std::vector<EventTime> times;
  for (size_t i = 0; i < events; ++i) {
    times.push_back(reader.next());
    if (!reader.ok()) return std::nullopt;
  }
  if (!reader.at_end()) return std::nullopt;
  return times;
}

}  // namespace

TEST_CASE("each event happened within the bounds that are read") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<EventTime> times;
    std::vector<uint64_t> happened;
    uint64_t now = random() % (1000 * kSecond) + 1;
    for (int i = 0; i < 300; ++i) {
      // Often a few in the same microsecond, sometimes a pause of any length.
      if (random() % 4 == 0) now += random() % (uint64_t{1} << random() % 32);
      const uint64_t give = random() % 2 ? 0 : random() % (uint64_t{1} << random() % 24);
      happened.push_back(now);
      times.push_back({now - std::min(now, random() % (give + 1)), now + random() % (give + 1), 0});
    }
    const Bytes block = written(times);
    const auto back = read(block, times.size());
    REQUIRE(back);
    for (size_t i = 0; i < times.size(); ++i) {
      const EventTime& time = (*back)[i];
      CAPTURE(i);
      CHECK(time.known());
      CHECK(time.from_ns <= happened[i]);
      CHECK(happened[i] <= time.to_ns);
      CHECK(time.from_ns <= time.at_ns);
      CHECK(time.at_ns <= time.to_ns);
      // Unless a later event shows that the guess was too late.
      if (i > 0) CHECK(((*back)[i - 1].at_ns <= time.at_ns || time.at_ns == time.to_ns));
    }
    CHECK_FALSE(read(block, times.size() - 1));
    CHECK_FALSE(read(block, times.size() + 1));
    CHECK_FALSE(read(Bytes(block.begin(), block.end() - 1), times.size()));
  }
}

TEST_CASE("events that are far apart have times of their own, and many that are close share one") {
  const auto apart = read(written({exactly(kSecond), exactly(kSecond + 2 * kMillisecond), exactly(3 * kSecond)}), 3);
  REQUIRE(apart);
  CHECK_EQ((*apart)[0], EventTime{kSecond, kSecond, kSecond});
  CHECK_EQ((*apart)[1].at_ns, kSecond + 2 * kMillisecond);
  CHECK_EQ((*apart)[2].to_ns, 3 * kSecond);

  std::vector<EventTime> close;
  for (uint64_t i = 0; i < 10'000; ++i) close.push_back(exactly(kSecond + i * kMicrosecond));
  const Bytes block = written(close);
  CHECK(block.size() < 80);
  const auto back = read(block, close.size());
  REQUIRE(back);
  for (size_t i = 0; i < close.size(); ++i) {
    CHECK((*back)[i].to_ns - (*back)[i].from_ns <= kMillisecond);
    const uint64_t was = close[i].from_ns, guess = (*back)[i].at_ns;
    CHECK((guess > was ? guess - was : was - guess) < 20 * kMicrosecond);
  }
}

TEST_CASE("what is not known stays so") {
  const std::vector<EventTime> times{{}, {}, exactly(kSecond), {}, exactly(2 * kSecond)};
  const auto back = read(written(times), times.size());
  REQUIRE(back);
  for (size_t i = 0; i < times.size(); ++i) CHECK_EQ((*back)[i].known(), times[i].known());
  CHECK_EQ(written({}).size(), 0);
}

TEST_CASE("bytes that are no times are refused") {
  for (const Bytes& block :
       {Bytes{0, 1, 1}, Bytes{1, 1}, Bytes{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1},
        Bytes{1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}}) {
    CHECK_FALSE(read(block, 1));
  }
}

TEST_CASE("the wall clock follows the monotonic one, and its error grows where it was set") {
  WallClock clock;
  const auto at = [&](uint64_t ns) { return clock.at(ns).value(); };
  CHECK_FALSE(clock.at(5 * kSecond));
  constexpr int64_t kOffset = 1'795'000'000'000'000'000;
  REQUIRE(clock.add({10 * kSecond, 10 * kSecond, kOffset, 7}));
  CHECK_FALSE(clock.at(EventTime{}));
  CHECK_EQ(at(5 * kSecond).unix_ns, kOffset + 5'000'000'000);
  CHECK_EQ(at(5 * kSecond).error_ns, 7);
  CHECK_EQ(clock.at({5 * kSecond, 5 * kSecond + 30, 5 * kSecond + 10})->error_ns, 20 + 7);
  // It is set back an hour, between 20 s and 21 s.
  constexpr int64_t kHour = 3'600'000'000'000;
  REQUIRE(clock.add({20 * kSecond, 21 * kSecond, kOffset - kHour, 3}));
  CHECK_EQ(at(19 * kSecond).error_ns, 7);
  CHECK_EQ(at(20 * kSecond + 5).unix_ns, kOffset + 20'000'000'005);
  CHECK_EQ(at(20 * kSecond + 5).error_ns, kHour + 7);
  CHECK_EQ(at(21 * kSecond).unix_ns, kOffset - kHour + 21'000'000'000);
  CHECK_EQ(at(21 * kSecond).error_ns, 3);

  CHECK_FALSE(clock.add({19 * kSecond, 22 * kSecond, kOffset, 0}));
  CHECK_FALSE(clock.add({23 * kSecond, 22 * kSecond, kOffset, 0}));
  CHECK_FALSE(clock.add({22 * kSecond, UINT64_MAX, kOffset, 0}));
  CHECK_FALSE(clock.add({22 * kSecond, 22 * kSecond, INT64_MIN, 0}));
  CHECK_FALSE(clock.at(UINT64_MAX));
}

}  // namespace redrive::event_times_test
