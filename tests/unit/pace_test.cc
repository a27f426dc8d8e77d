// From replays that were measured to what others take.
#include "supervisor/plan/pace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "supervisor/plan/certificate.h"

namespace redrive::pace_test {

namespace {

double predicted_s(const Pace& pace, const MeasuredReplay& replay) {
  return pace.begin_s + pace.start_s * replay.starts + pace.message_s * replay.messages +
         pace.times * replay.executing_s + replay.restoring_s;
}

// A replay with these starts and messages, and so many seconds of recorded time. Each start restores memory.
MeasuredReplay measured(const Pace& pace, double starts, double messages, double executing_s) {
  MeasuredReplay replay{starts, messages, executing_s, 0.01 * starts, 0};
  replay.seconds = predicted_s(pace, replay);
  return replay;
}

Pace costs(double begin_s, double start_s, double message_s, double times) {
  Pace pace;
  pace.begin_s = begin_s;
  pace.start_s = start_s;
  pace.message_s = message_s;
  pace.times = times;
  return pace;
}

PredictedReplay replay(UnitId unit, uint64_t intervals, double predicted_s) {
  PredictedReplay replay;
  replay.unit = unit;
  replay.intervals = intervals;
  replay.predicted_s = predicted_s;
  return replay;
}

std::vector<UnitId> units(const std::vector<PredictedReplay>& replays) {
  std::vector<UnitId> units;
  for (const auto& replay : replays) units.push_back(replay.unit);
  return units;
}

}  // namespace

TEST_CASE("pace: what replays took is divided into beginning, starting, messages and executing") {
  const Pace real = costs(0.02, 0.01, 10e-6, 1.4);
  const Pace pace =
      fit_pace({measured(real, 1, 0, 0.002), measured(real, 2.5, 100, 0.1), measured(real, 4.5, 5000, 0.03),
                measured(real, 3, 1000, 0.12), measured(real, 5, 0, 0.05)});
  CHECK_EQ(pace.begin_s, doctest::Approx(0.02));
  CHECK_EQ(pace.start_s, doctest::Approx(0.01));
  CHECK_EQ(pace.message_s, doctest::Approx(10e-6));
  CHECK_EQ(pace.times, doctest::Approx(1.4));
  CHECK_EQ(pace.least, doctest::Approx(1.4));
  CHECK_EQ(pace.most, doctest::Approx(1.4));
  CHECK_EQ(pace.measured, 5);
}

TEST_CASE("pace: it has a least, whatever was measured") {
  const Pace pace = fit_pace({{1, 0, 0.1, 0, 0.02}, {3, 7, 0.2, 0, 0.05}});
  CHECK_EQ(pace.times, kLeastPace);
  CHECK_EQ(pace.begin_s, 0);
  CHECK_EQ(pace.start_s, 0);
  CHECK_EQ(pace.message_s, 0);
  CHECK_EQ(pace.least, doctest::Approx(0.2));
  CHECK_EQ(pace.most, doctest::Approx(0.25));
  CHECK_EQ(fit_pace({}), Pace{});
}

TEST_CASE("pace: a shortest replay that executes much does not say what every replay takes to begin") {
  // Replays of 4 units: one that executes nothing, and others, the shortest of which has 4 intervals.
  const Pace real = costs(0.01, 0.012, 0, 1.3);
  const Pace pace = fit_pace({measured(real, 1, 0, 0.001), measured(real, 2.5, 0, 0.095), measured(real, 5.5, 0, 0.15),
                              measured(real, 3, 0, 0.13), measured(real, 5, 0, 0.2)});
  CHECK_EQ(pace.begin_s, doctest::Approx(0.01));
  CHECK_EQ(pace.start_s, doctest::Approx(0.012));
  CHECK_EQ(pace.times, doctest::Approx(1.3));
}

TEST_CASE("pace: no measured replay takes longer than predicted, and no other costs predict less of them") {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto between = [&](double a, double b) { return std::uniform_real_distribution(a, b)(random); };
    std::vector<MeasuredReplay> all(1 + random() % 8);
    const Pace real = costs(between(0, 0.1), between(0, 0.03), between(0, 30e-6), between(0.3, 2));
    for (auto& each : all) {
      each = measured(real, between(1, 8), between(0, 3000), between(0, 0.3));
      each.seconds *= between(0.8, 1.2);
    }
    const auto sum = [&](const Pace& pace) {
      double sum = 0;
      for (const auto& each : all) sum += predicted_s(pace, each) / each.seconds;
      return sum;
    };
    const Pace pace = fit_pace(all);
    CHECK_GE(pace.times, kLeastPace);
    CHECK_GE(pace.begin_s, 0);
    CHECK_GE(pace.start_s, 0);
    CHECK_GE(pace.message_s, 0);
    CHECK_LE(pace.most, pace.times * (1 + 1e-6));
    for (int other = 0; other < 200; ++other) {
      const Pace guess = costs(between(0, 0.12), between(0, 0.04), between(0, 40e-6), between(kLeastPace, 2.5));
      const bool is_allowed = std::all_of(all.begin(), all.end(),
                                          [&](const auto& each) { return predicted_s(guess, each) >= each.seconds; });
      if (is_allowed) CHECK_GE(sum(guess), sum(pace) - 1e-6);
    }
  }
}

TEST_CASE("pace: the shortest, the longest and the most different replays are measured") {
  const std::vector<PredictedReplay> replays{replay(1, 1, 0.10),  replay(2, 4, 0.30), replay(3, 4, 0.29),
                                             replay(4, 4, 0.28),  replay(5, 4, 0.27), replay(6, 9, 0.12),
                                             replay(7, 9, 0.29),  replay(8, 1, 0.02), replay(9, 4, 1.20),
                                             replay(10, 4, 0.25), replay(11, 4, 0.26)};
  const auto chosen = units(worth_measuring(replays, 1));
  CHECK_EQ(chosen.front(), 8);
  for (const UnitId wanted : {2u, 3u, 7u, 6u, 1u}) CHECK_EQ(std::count(chosen.begin(), chosen.end(), wanted), 1);
  CHECK_EQ(std::count(chosen.begin(), chosen.end(), 9u), 0);  // it takes too long
  CHECK_EQ(units(worth_measuring({replay(1, 1, 3), replay(2, 1, 2)}, 1)), std::vector<UnitId>{2});
  CHECK(worth_measuring({}, 1).empty());
  // Replays that are alike are measured often enough to see how much they differ.
  CHECK_EQ(worth_measuring(std::vector(20, replay(1, 2, 0.1)), 1).size(), 4);
}

}  // namespace redrive::pace_test
