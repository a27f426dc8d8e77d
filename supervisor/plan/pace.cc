#include "supervisor/plan/pace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "supervisor/plan/certificate.h"

namespace redrive {
namespace {

constexpr double kMostMeasured_s = 1;                            // what is predicted of a replay that is measured
constexpr size_t kLongest = 3, kUnlikeAll = 2, kUnlikeLong = 2;  // how many of each are chosen

// What a replay takes: begin_s, start_s, message_s and pace.times, each so many times.
using Costs = std::array<double, 4>;

double product(const Costs& a, const Costs& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

Costs factors(const MeasuredReplay& replay) { return {1, replay.starts, replay.messages, replay.executing_s}; }

// A half-space: the costs of which `factors` makes at least this much.
struct AtLeast {
  Costs factors;
  double sum = 0;

  bool has(const Costs& costs) const {
    constexpr double kRounding = 1e-9;
    return product(factors, costs) >= sum - kRounding;
  }
};

// Where their borders meet (Gauss-Jordan elimination); none if that is no single place.
std::optional<Costs> corner(std::array<AtLeast, 4> borders) {
  constexpr double kFlat = 1e-9;
  for (size_t i = 0; i < borders.size(); ++i) {
    const auto pivot = std::max_element(
        borders.begin() + static_cast<ptrdiff_t>(i), borders.end(),
        [&](const AtLeast& a, const AtLeast& b) { return std::abs(a.factors[i]) < std::abs(b.factors[i]); });
    if (std::abs(pivot->factors[i]) < kFlat) return std::nullopt;
    std::swap(borders[i], *pivot);
    for (AtLeast& border : borders) {
      if (&border == &borders[i]) continue;
      const double times = border.factors[i] / borders[i].factors[i];
      for (size_t k = i; k < border.factors.size(); ++k) border.factors[k] -= times * borders[i].factors[k];
      border.sum -= times * borders[i].sum;
    }
  }
  Costs place;
  for (size_t i = 0; i < place.size(); ++i) place[i] = borders[i].sum / borders[i].factors[i];
  return place;
}

// Calls `visit` with each choice of so many of these, from this one on.
template <typename Visit>
void for_each_choice(const std::vector<AtLeast>& all, std::array<AtLeast, 4>& chosen, size_t count, size_t from,
                     const Visit& visit) {
  if (count == chosen.size()) return visit(chosen);
  for (size_t i = from; i < all.size(); ++i) {
    chosen[count] = all[i];
    for_each_choice(all, chosen, count + 1, i + 1, visit);
  }
}

}  // namespace

// A linear program with four variables: its optimum is in a corner of what is allowed, and few corners are possible.
Pace fit_pace(const std::vector<MeasuredReplay>& measured) {
  if (measured.empty()) return {};
  double most_messages = 1;  // of one replay: numbers of the same size are computed with
  for (const MeasuredReplay& replay : measured) most_messages = std::max(most_messages, replay.messages);
  std::vector<AtLeast> allowed{{{1, 0, 0, 0}, 0}, {{0, 1, 0, 0}, 0}, {{0, 0, 1, 0}, 0}, {{0, 0, 0, 1}, kLeastPace}};
  Costs all{};
  for (const MeasuredReplay& replay : measured) {
    Costs its = factors(replay);
    its[2] /= most_messages;
    allowed.push_back({its, replay.seconds - replay.restoring_s});
    for (size_t i = 0; i < all.size(); ++i) all[i] += its[i] / replay.seconds;
  }
  Costs best{0, 0, 0, 1};
  std::optional<double> least;
  std::array<AtLeast, 4> chosen;
  for_each_choice(allowed, chosen, 0, 0, [&](const std::array<AtLeast, 4>& borders) {
    const auto costs = corner(borders);
    const auto has = [&](const AtLeast& half) { return half.has(*costs); };
    if (!costs || !std::all_of(allowed.begin(), allowed.end(), has)) return;
    const double sum = product(all, *costs);
    if (least && sum >= *least) return;
    least = sum;
    best = *costs;
  });
  best[2] /= most_messages;
  Pace pace;
  // Rounding can leave a little less than what is allowed.
  pace.begin_s = std::max(0.0, best[0]);
  pace.start_s = std::max(0.0, best[1]);
  pace.message_s = std::max(0.0, best[2]);
  pace.times = std::max(kLeastPace, best[3]);
  for (const MeasuredReplay& replay : measured) {
    const double predicted_s = product(factors(replay), best) + replay.restoring_s;
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

  double most_starts = 0, most_messages = 1;
  for (const auto& replay : replays) {
    most_starts = std::max(most_starts, starts(replay.intervals, jobs));
    most_messages = std::max(most_messages, static_cast<double>(replay.messages));
  }
  std::vector<PredictedReplay> chosen;
  const auto choose = [&](size_t place) {
    chosen.push_back(replays[place]);
    replays.erase(replays.begin() + static_cast<ptrdiff_t>(place));
  };
  if (!replays.empty()) choose(0);
  for (size_t i = 0; i < kLongest && !replays.empty(); ++i) choose(replays.size() - 1);
  if (replays.empty()) return chosen;

  const double longest_s = chosen[1].predicted_s;
  const auto difference = [&](const PredictedReplay& a, const PredictedReplay& b) {
    const double messages = static_cast<double>(a.messages) - static_cast<double>(b.messages);
    return std::max({std::abs(a.predicted_s - b.predicted_s) / longest_s,
                     std::abs(starts(a.intervals, jobs) - starts(b.intervals, jobs)) / most_starts,
                     std::abs(messages) / most_messages});
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
