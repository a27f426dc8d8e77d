#include "supervisor/plan/pace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "supervisor/plan/certificate.h"

namespace redrive {
namespace {

constexpr double kMostMeasured_s = 0.5;                          // what is predicted of a replay that is measured
constexpr size_t kLongest = 3, kUnlikeAll = 2, kUnlikeLong = 2;  // how many of each are chosen

// What a replay takes: begin_s, start_s and pace.times, each so many times.
using Costs = std::array<double, 3>;

double product(const Costs& a, const Costs& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

Costs cross(const Costs& a, const Costs& b) {
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

// A half-space: the costs of which `factors` makes at least this much.
struct AtLeast {
  Costs factors;
  double sum = 0;

  bool has(const Costs& costs) const {
    constexpr double kRounding = 1e-9;
    return product(factors, costs) >= sum - kRounding;
  }
};

// Where their borders meet (Cramer's rule); none if that is no single place.
std::optional<Costs> corner(const AtLeast& a, const AtLeast& b, const AtLeast& c) {
  constexpr double kFlat = 1e-12;
  const Costs bc = cross(b.factors, c.factors), ca = cross(c.factors, a.factors), ab = cross(a.factors, b.factors);
  const double volume = product(a.factors, bc);
  if (std::abs(volume) < kFlat) return std::nullopt;
  Costs place;
  for (size_t i = 0; i < place.size(); ++i) place[i] = (a.sum * bc[i] + b.sum * ca[i] + c.sum * ab[i]) / volume;
  return place;
}

}  // namespace

// A linear program with three variables: its optimum is in a corner of what is allowed, and few corners are possible.
Pace fit_pace(const std::vector<MeasuredReplay>& measured) {
  std::vector<AtLeast> allowed{{{1, 0, 0}, 0}, {{0, 1, 0}, 0}, {{0, 0, 1}, 1}};
  Costs all{};
  for (const MeasuredReplay& replay : measured) {
    allowed.push_back({{1, replay.starts, replay.recorded_s}, replay.seconds});
    for (size_t i = 0; i < all.size(); ++i) all[i] += allowed.back().factors[i] / replay.seconds;
  }
  Costs best{0, 0, 1};
  std::optional<double> least;
  for (size_t i = 0; i < allowed.size(); ++i) {
    for (size_t j = i + 1; j < allowed.size(); ++j) {
      for (size_t k = j + 1; k < allowed.size(); ++k) {
        const auto costs = corner(allowed[i], allowed[j], allowed[k]);
        const auto has = [&](const AtLeast& half) { return half.has(*costs); };
        if (!costs || !std::all_of(allowed.begin(), allowed.end(), has)) continue;
        const double sum = product(all, *costs);
        if (least && sum >= *least) continue;
        least = sum;
        best = *costs;
      }
    }
  }
  Pace pace;
  // At a border of what is allowed, rounding can leave a little less.
  pace.begin_s = std::max(0.0, best[0]);
  pace.start_s = std::max(0.0, best[1]);
  pace.times = std::max(1.0, best[2]);
  for (const MeasuredReplay& replay : measured) {
    const double predicted_s = product({1, replay.starts, replay.recorded_s}, best);
    const double times = pace.times * replay.seconds / predicted_s;
    if (pace.measured++ == 0) pace.least = pace.most = times;
    pace.least = std::min(pace.least, times);
    pace.most = std::max(pace.most, times);
  }
  return pace;
}

std::vector<PredictedReplay> worth_measuring(std::vector<PredictedReplay> replays, uint32_t jobs) {
  std::sort(replays.begin(), replays.end(),
            [](const PredictedReplay& a, const PredictedReplay& b) { return a.predicted_s < b.predicted_s; });
  const auto too_long = std::find_if(replays.begin(), replays.end(), [](const PredictedReplay& replay) {
    return replay.predicted_s > kMostMeasured_s;
  });
  if (!replays.empty()) replays.erase(std::max(too_long, replays.begin() + 1), replays.end());

  std::vector<PredictedReplay> chosen;
  const auto choose = [&](size_t place) {
    chosen.push_back(replays[place]);
    replays.erase(replays.begin() + static_cast<ptrdiff_t>(place));
  };
  if (!replays.empty()) choose(0);
  for (size_t i = 0; i < kLongest && !replays.empty(); ++i) choose(replays.size() - 1);
  if (replays.empty()) return chosen;

  const double longest_s = chosen[1].predicted_s;
  double most_starts = 0;
  for (const auto& replay : chosen) most_starts = std::max(most_starts, starts(replay, jobs));
  for (const auto& replay : replays) most_starts = std::max(most_starts, starts(replay, jobs));
  const auto difference = [&](const PredictedReplay& a, const PredictedReplay& b) {
    return std::max(std::abs(a.predicted_s - b.predicted_s) / longest_s,
                    std::abs(starts(a, jobs) - starts(b, jobs)) / most_starts);
  };
  const auto choose_unlike = [&](double least_s) {
    size_t unlike = replays.size();
    double largest = 0;
    for (size_t i = 0; i < replays.size(); ++i) {
      if (replays[i].predicted_s < least_s) continue;
      double nearest = 1;
      for (const auto& other : chosen) nearest = std::min(nearest, difference(replays[i], other));
      if (nearest > largest) unlike = i, largest = nearest;
    }
    if (unlike < replays.size()) choose(unlike);
  };
  for (size_t i = 0; i < kUnlikeAll; ++i) choose_unlike(0);
  for (size_t i = 0; i < kUnlikeLong; ++i) choose_unlike(longest_s / 2);
  return chosen;
}

}  // namespace redrive
