// From replays that were measured to what others take.
#include "supervisor/plan/pace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "supervisor/plan/certificate.h"

using namespace redrive;

namespace {

double predicted_s(const Pace& pace, const MeasuredReplay& replay) {
  return pace.begin_s + pace.start_s * replay.starts + pace.times * replay.recorded_s;
}

MeasuredReplay measured(double begin_s, double start_s, double times, double starts, double recorded_s) {
  return {starts, recorded_s, begin_s + start_s * starts + times * recorded_s};
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

TEST_CASE("pace: what replays took is divided into beginning, starting and executing") {
  const Pace pace = fit_pace({measured(0.02, 0.01, 1.4, 1, 0.002), measured(0.02, 0.01, 1.4, 2.5, 0.1),
                              measured(0.02, 0.01, 1.4, 4.5, 0.03), measured(0.02, 0.01, 1.4, 3, 0.12)});
  CHECK_EQ(pace.begin_s, doctest::Approx(0.02));
  CHECK_EQ(pace.start_s, doctest::Approx(0.01));
  CHECK_EQ(pace.times, doctest::Approx(1.4));
  CHECK_EQ(pace.least, doctest::Approx(1.4));
  CHECK_EQ(pace.most, doctest::Approx(1.4));
  CHECK_EQ(pace.measured, 4);
}

TEST_CASE("pace: it is never less than what was recorded") {
  const Pace pace = fit_pace({{1, 0.1, 0.08}, {3, 0.2, 0.12}});
  CHECK_EQ(pace.times, 1);
  CHECK_EQ(pace.begin_s, 0);
  CHECK_EQ(pace.start_s, 0);
  CHECK_EQ(pace.least, doctest::Approx(0.6));
  CHECK_EQ(pace.most, doctest::Approx(0.8));
  CHECK_EQ(fit_pace({}), Pace{});
}

TEST_CASE("pace: a shortest replay that executes much does not say what every replay takes to begin") {
  // The replays of 4 units of which one interval in two can be started from.
  const Pace pace = fit_pace({measured(0.01, 0.012, 1.3, 2.5, 0.095), measured(0.01, 0.012, 1.3, 5.5, 0.15),
                              measured(0.01, 0.012, 1.3, 3, 0.13), measured(0.01, 0.012, 1.3, 5, 0.2)});
  CHECK_EQ(pace.begin_s, doctest::Approx(0.01));
  CHECK_EQ(pace.start_s, doctest::Approx(0.012));
}

TEST_CASE("pace: no measured replay takes longer than predicted, and no other costs predict less of them") {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto between = [&](double a, double b) { return std::uniform_real_distribution(a, b)(random); };
    std::vector<MeasuredReplay> all(1 + random() % 8);
    const double begin_s = between(0, 0.1), start_s = between(0, 0.03), times = between(0.5, 2);
    for (auto& each : all) {
      each = measured(begin_s, start_s, times, between(1, 8), between(0, 0.3));
      each.seconds *= between(0.8, 1.2);
    }
    const auto sum = [&](const Pace& pace) {
      double sum = 0;
      for (const auto& each : all) sum += predicted_s(pace, each) / each.seconds;
      return sum;
    };
    const Pace pace = fit_pace(all);
    CHECK_GE(pace.times, 1);
    CHECK_GE(pace.begin_s, 0);
    CHECK_GE(pace.start_s, 0);
    CHECK_LE(pace.most, pace.times * (1 + 1e-6));
    for (int other = 0; other < 200; ++other) {
      Pace costs;
      costs.begin_s = between(0, 0.12);
      costs.start_s = between(0, 0.04);
      costs.times = between(1, 2.5);
      const bool is_allowed = std::all_of(all.begin(), all.end(),
                                          [&](const auto& each) { return predicted_s(costs, each) >= each.seconds; });
      if (is_allowed) CHECK_GE(sum(costs), sum(pace) - 1e-6);
    }
  }
}

TEST_CASE("pace: the shortest, the longest and the most different replays are measured") {
  const std::vector<PredictedReplay> replays{replay(1, 1, 0.10),  replay(2, 4, 0.30), replay(3, 4, 0.29),
                                             replay(4, 4, 0.28),  replay(5, 4, 0.27), replay(6, 9, 0.12),
                                             replay(7, 9, 0.29),  replay(8, 1, 0.02), replay(9, 4, 0.60),
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
