// How users write moments of a recording, and how times are shown.
#include "supervisor/cli/time_of_day.h"

#include <cstdlib>
#include <ctime>

#include "tests/unit/unit_test.h"

namespace redrive::time_of_day_test {

namespace {

constexpr int64_t kSecond = 1'000'000'000;
// 2026-11-22 19:23:20 to 19:23:30 UTC.
constexpr RecordedSpan kRecorded{1'795'375'400 * kSecond, 1'795'375'410 * kSecond};
constexpr int64_t kMidnight_s = 1'795'305'600;

// Local time is two hours ahead of UTC.
Moment whole_moment(const char* text, bool utc = true) {
  setenv("TZ", "ABC-2", 1);
  tzset();
  CAPTURE(text);
  const auto at = parse_moment(text, utc, kRecorded);
  REQUIRE_MESSAGE(at, at.error().message);
  return at.value();
}

int64_t moment(const char* text, bool utc = true) { return whole_moment(text, utc).first_ns; }

}  // namespace

TEST_CASE("a moment is a time of the recording, a day, a Unix time or a distance") {
  CHECK_EQ(moment("19:23:25"), (kMidnight_s + 69805) * kSecond);
  CHECK_EQ(moment("19:23:25.25"), (kMidnight_s + 69805) * kSecond + 250'000'000);
  CHECK_EQ(moment("19:23"), (kMidnight_s + 69780) * kSecond);
  CHECK_EQ(moment("21:23:25", false), (kMidnight_s + 69805) * kSecond);
  // The last such time before the end is that of the day before.
  CHECK_EQ(moment("19:24"), (kMidnight_s + 69840 - 86400) * kSecond);
  CHECK_EQ(moment("23:59:59.999999999"), kMidnight_s * kSecond - 1);
  CHECK_EQ(moment("2026-11-22"), kMidnight_s * kSecond);
  CHECK_EQ(moment("2026-11-22", false), (kMidnight_s - 7200) * kSecond);
  CHECK_EQ(moment("2026-11-21 00:00:01.5"), (kMidnight_s - 86399) * kSecond + kSecond / 2);
  for (const bool utc : {true, false}) {
    CHECK_EQ(moment("2026-11-22T01:02:03.000004Z", utc), (kMidnight_s + 3723) * kSecond + 4000);
    CHECK_EQ(moment("2026-11-22T01:02:03+01:30", utc), (kMidnight_s + 3723 - 5400) * kSecond);
    CHECK_EQ(moment("2026-11-22 01:02-00:30", utc), (kMidnight_s + 3720 + 1800) * kSecond);
    CHECK_EQ(moment("@1795375405.125", utc), 1'795'375'405 * kSecond + 125'000'000);
    CHECK_EQ(moment("-5min", utc), kRecorded.end_ns - 300 * kSecond);
    CHECK_EQ(moment("-1.5s", utc), kRecorded.end_ns - 3 * kSecond / 2);
    CHECK_EQ(moment("+250ms", utc), kRecorded.start_ns + kSecond / 4);
  }
}

TEST_CASE("a moment is everything that begins with its digits") {
  const struct {
    const char* text;
    int64_t length_ns;
  } moments[] = {{"2026-11-22", 86400 * kSecond},
                 {"19:23", 60 * kSecond},
                 {"2026-11-22 01:02-00:30", 60 * kSecond},
                 {"19:23:25", kSecond},
                 {"2026-11-22 19:23:25.2", kSecond / 10},
                 {"@1795375405", kSecond},
                 {"@1795375405.125000", 1000},
                 {"2026-11-22T19:23:20.001234Z", 1000},
                 {"19:23:25.123456789", 1},
                 {"-1.5s", 1},
                 {"+250ms", 1}};
  for (const auto& [text, length_ns] : moments) {
    CAPTURE(text);
    const Moment at = whole_moment(text);
    CHECK_EQ(at.last_ns - at.first_ns + 1, length_ns);
  }
}

TEST_CASE("a time that is shown includes the exact one") {
  const int64_t at_ns = kRecorded.start_ns + 1'234'567;
  for (const std::string& shown : {clock_text(at_ns, true), day_text(at_ns, true), rfc3339(at_ns)}) {
    CAPTURE(shown);
    const Moment at = whole_moment(shown.c_str());
    CHECK_LE(at.first_ns, at_ns);
    CHECK_GE(at.last_ns, at_ns);
  }
}

TEST_CASE("anything else is no moment") {
  for (const char* text : {"",
                           "soon",
                           "@",
                           "@-1",
                           "@1.",
                           "@99999999999999",
                           "25:00",
                           "19:23:",
                           "19:23:25.",
                           "19:23:25.0000000001",
                           "19:23:25Z",
                           "2026-13-01",
                           "2026-11-22x",
                           "2026-11-22T",
                           "2026-11-22 01:02+1",
                           "-",
                           "-5",
                           "+5",
                           "-5 min",
                           "5min"}) {
    CAPTURE(text);
    const auto at = parse_moment(text, true, kRecorded);
    REQUIRE_FALSE(at);
    CHECK(at.error().status == Status::usage);
  }
}

TEST_CASE("times are shown in microseconds, with errors that are not too small") {
  const int64_t at_ns = kRecorded.start_ns + 1'234'567;
  setenv("TZ", "ABC-2", 1);
  tzset();
  CHECK_EQ(clock_text(at_ns, true), "19:23:20.001234");
  CHECK_EQ(clock_text(at_ns, false), "21:23:20.001234");
  CHECK_EQ(day_text(at_ns, false), "2026-11-22 21:23:20.001234");
  CHECK_EQ(rfc3339(at_ns), "2026-11-22T19:23:20.001234Z");
  CHECK_EQ(rfc3339(-1), "1969-12-31T23:59:59.999999Z");
  CHECK_EQ(error_text(0), "+-0us");
  CHECK_EQ(error_text(12'001), "+-13us");
  CHECK_EQ(error_text(999'001), "+-1.00ms");
  CHECK_EQ(error_text(1'230'001), "+-1.24ms");
  CHECK_EQ(error_text(3'600'000'000'001), "+-3600.1s");
}

TEST_CASE("an interval ran at a moment if its bounds say that it may have") {
  const IntervalTimes times{WallTime{1000, 10}, WallTime{2000, 20}};
  for (const Moment at : {Moment{900, 990}, Moment{1500, 1500}, Moment{2020, 2100}, Moment{900, 2100}}) {
    CHECK(times.ran_at(at));
  }
  for (const Moment at : {Moment{900, 989}, Moment{2021, 2100}}) CHECK_FALSE(times.ran_at(at));
  CHECK(IntervalTimes{WallTime{1000, 0}, std::nullopt}.ran_at({1'000'000, 1'000'000}));
  CHECK_FALSE(IntervalTimes{}.ran_at({1000, 1000}));
}

}  // namespace redrive::time_of_day_test
