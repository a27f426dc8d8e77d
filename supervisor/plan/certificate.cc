#include "supervisor/plan/certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>

#include "base/parallel.h"
#include "base/text.h"
#include "base/units.h"
#include "supervisor/plan/graph.h"
#include "supervisor/plan/restore_cost.h"

namespace redrive {
namespace {

// A sum may take this part of the bound. Its times were not compared with any replay.
constexpr double kSumOfBound = 0.5;

constexpr size_t kPartsOfProcessor = 4;  // into which all plans are divided, because they do not take equally long

// The most that a list schedule takes for what is additional work in all (Graham), of which the longest path has the
// largest.
double list_schedule(double all, double largest, uint32_t jobs) {
  const double share = 1.0 / jobs;
  return all * share + largest * (1 - share);
}

double executing_s(const ReplaySums& sums, uint32_t jobs) { return list_schedule(sums.work_s, sums.path_s, jobs); }

double restoring_s(const ReplaySums& sums, uint32_t jobs) {
  return list_schedule(sums.restore_s, sums.longest_restore_s, jobs);
}

}  // namespace

ReplayCosts costs_of(const Trace& trace, uint32_t jobs) {
  ReplayCosts costs;
  costs.jobs = std::max(jobs, 1u);
  costs.pace.start_s = unmeasured_start_s(trace.settings().restore_cost_s);
  costs.restore_s = [&trace](UnitId unit, IntervalIndex interval) { return restore_s(trace, unit, interval); };
  costs.memory_bytes = [&trace](UnitId unit, IntervalIndex interval) { return trace.stored_bytes(unit, interval); };
  return costs;
}

double starts(uint64_t intervals, uint32_t jobs) { return list_schedule(static_cast<double>(intervals), 1, jobs); }

double overhead_s(uint64_t intervals, uint64_t messages, uint32_t jobs, const Pace& pace) {
  return pace.begin_s + pace.start_s * starts(intervals, jobs) + pace.message_s * static_cast<double>(messages);
}

double predicted_s(const ReplaySums& sums, uint32_t jobs, const Pace& pace) {
  return pace.times * executing_s(sums, jobs) + restoring_s(sums, jobs) +
         overhead_s(sums.intervals, sums.messages, jobs, pace);
}

PredictedReplay predict(const Plan& plan, const ReplayCosts& costs) {
  ReplaySums sums{seconds(plan.work_ns), seconds(plan.critical_path_ns)};
  sums.intervals = plan.replay_set.size();
  sums.messages = plan.messages;
  PredictedReplay replay{plan.unit, plan.interval, sums.intervals, sums.work_s};
  replay.messages = sums.messages;
  double errors = 0, largest_error_s = 0;  // the sum of squares
  for (const auto& planned : plan.replay_set) {
    sums.add_restore(costs.restore_s(planned.unit, planned.start));
    replay.memory_bytes += costs.memory_bytes(planned.unit, planned.start);
    const double error_s = seconds(planned.clock_error_ns);
    errors += error_s * error_s;
    largest_error_s = std::max(largest_error_s, error_s);
  }
  replay.restore_s = sums.restore_s;
  replay.executing_s = executing_s(sums, costs.jobs);
  replay.restoring_s = restoring_s(sums, costs.jobs);
  replay.clock_error_s = costs.pace.times * list_schedule(std::sqrt(errors), largest_error_s, costs.jobs);
  replay.predicted_s = predicted_s(sums, costs.jobs, costs.pace) + replay.clock_error_s;
  return replay;
}

Result<std::vector<PredictedReplay>> predict_all(const Rdg& graph, const ReplayCosts& costs, uint64_t most_work) {
  std::vector<std::pair<UnitId, IntervalIndex>> all;
  for (const auto& [unit, intervals] : graph.units) {
    for (IntervalIndex i = 0; i < intervals.size(); ++i) all.emplace_back(unit, i);
  }
  const size_t parts = kPartsOfProcessor * static_cast<size_t>(processor_count());
  std::vector<std::vector<PredictedReplay>> replays(parts);
  std::atomic<uint64_t> work = 0;
  for_each_in_parallel(parts, [&](size_t part) {
    Planner planner(graph);
    for (size_t i = all.size() * part / parts; i < all.size() * (part + 1) / parts && work <= most_work; ++i) {
      const auto planned = planner.plan(all[i].first, all[i].second);
      if (!planned.plan) continue;
      work += planned.plan->replay_set.size() + planned.plan->messages;
      replays[part].push_back(predict(*planned.plan, costs));
    }
  });
  if (work > most_work) {
    return Error{fmt::format("its {} depend on so much of each other that not all of their replays can be planned",
                             counted(all.size(), "interval"))};
  }
  std::vector<PredictedReplay> result;
  for (auto& part : replays) std::ranges::move(part, std::back_inserter(result));
  return result;
}

Certificate certify(const std::vector<PredictedReplay>& replays, double bound_s, const ReplayCosts& costs) {
  Certificate certificate;
  certificate.bound_s = bound_s;
  certificate.jobs = costs.jobs;
  certificate.pace = costs.pace;
  certificate.intervals = replays.size();
  for (const auto& replay : replays) {
    if (replay.predicted_s > certificate.slowest.predicted_s) certificate.slowest = replay;
    if (replay.predicted_s > bound_s) certificate.over.push_back(replay);
  }
  return certificate;
}

std::optional<Certificate> certify_sum(const Trace& trace) {
  const Settings& settings = trace.settings();
  if (!settings.keeps_bound() || !trace.finished()) return std::nullopt;
  Certificate certificate;
  certificate.bound_s = settings.bound_s;
  PredictedReplay& sum = certificate.slowest;
  for (const auto& unit : trace.units()) {
    for (const auto& interval : trace.intervals(unit.unit)) {
      ++certificate.intervals;
      sum.work_s += seconds(interval_extent(trace, unit.unit, interval.interval).cpu_ns);
      sum.restore_s += restore_s(trace, unit.unit, interval.interval);
    }
  }
  sum.predicted_s = sum.work_s + sum.restore_s +
                    static_cast<double>(certificate.intervals) * unmeasured_start_s(settings.restore_cost_s);
  if (sum.predicted_s > kSumOfBound * settings.bound_s) return std::nullopt;
  return certificate;
}

Result<std::optional<Certificate>> certificate_of(const Trace& trace) {
  if (!trace.settings().keeps_bound()) return std::optional<Certificate>();
  if (auto sum = certify_sum(trace)) return sum;
  return kept_certificate(trace);
}

bool is_same_promise(const Certificate& a, const Certificate& b) {
  constexpr double kRounding_s = 1e-6;
  const auto same = [](const PredictedReplay& x, const PredictedReplay& y) {
    return x.unit == y.unit && x.interval == y.interval && std::abs(x.predicted_s - y.predicted_s) < kRounding_s;
  };
  return a.bound_s == b.bound_s && a.jobs == b.jobs && a.intervals == b.intervals && same(a.slowest, b.slowest) &&
         std::equal(a.over.begin(), a.over.end(), b.over.begin(), b.over.end(), same);
}

std::string describe_over(const Trace& trace, const Certificate& certificate) {
  if (certificate.is_kept()) return {};
  const PredictedReplay& slowest = certificate.slowest;
  std::string text =
      fmt::format("unit {} ({}): re-driving interval {} takes about {}", slowest.unit,
                  printable(trace.unit_name(slowest.unit)), slowest.interval, format_duration(slowest.predicted_s));
  if (slowest.intervals > 1) {
    text += fmt::format(" with {}, because {} must be executed for it", counted(certificate.jobs, "job"),
                        counted(slowest.intervals, "interval"));
  }
  if (slowest.restore_s > slowest.work_s) {
    text += fmt::format(", of which {} to restore {}", format_duration(slowest.restore_s),
                        format_size(slowest.memory_bytes));
  }
  const uint64_t others = certificate.over.size() - 1;
  return text + fmt::format(": the bound of {} cannot be kept for it{}, but one of {} can",
                            format_duration(certificate.bound_s),
                            others ? fmt::format(" and {} more", counted(others, "interval")) : std::string(),
                            format_duration(slowest.predicted_s));
}

std::string describe_basis(const Certificate& certificate) {
  const auto& slowest = certificate.slowest;
  std::string text = format_duration(slowest.predicted_s) + " at most";
  if (slowest.unit == 0) return text + " for all together";
  text += fmt::format(" ({}:{}), predicted with {}", slowest.unit, slowest.interval, counted(certificate.jobs, "job"));
  constexpr double kLeastShown_s = 0.001;
  if (slowest.clock_error_s >= kLeastShown_s) {
    text +=
        fmt::format(", of which {} because times of messages are not exact", format_duration(slowest.clock_error_s));
  }
  const Pace& pace = certificate.pace;
  if (pace.measured == 0) return text + ", from recorded times";
  text += fmt::format(", at {:.2f} times what was recorded ({} took {:.2f} to {:.2f})", pace.times,
                      counted(pace.measured, "replay"), pace.least, pace.most);
  if (pace.start_s >= kLeastShown_s)
    text += fmt::format(", and {} to start an interval", format_duration(pace.start_s));
  if (pace.begin_s >= kLeastShown_s) text += fmt::format(", and {} to begin", format_duration(pace.begin_s));
  constexpr double kLeastOfMessages_s = 1e-6;
  if (pace.message_s >= kLeastOfMessages_s) {
    text += fmt::format(", and {} for each message between intervals", format_duration(pace.message_s));
  }
  return text;
}

}  // namespace redrive
