// Whether every replay keeps the bound: the replay of each interval is planned, and its time predicted.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "logstore/certificate.h"
#include "supervisor/plan/plan.h"

namespace redrive {

// What replays take on a host.
struct ReplayCosts {
  uint32_t jobs = 1;  // intervals that are executed at a time
  Pace pace;          // assumed, until it was measured
  std::function<double(UnitId, IntervalIndex)> restore_s;
  std::function<uint64_t(UnitId, IntervalIndex)> memory_bytes;  // that are restored
};
ReplayCosts costs_of(const Trace& trace, uint32_t jobs);

// What a replay consists of.
struct ReplaySums {
  double work_s = 0, path_s = 0;                // to execute the intervals: of all of them, and of the longest path
  double restore_s = 0, longest_restore_s = 0;  // to restore their memory: all together, and the largest
  uint64_t intervals = 0, messages = 0;         // messages: from one of the intervals to another

  void add_restore(double seconds) {
    restore_s += seconds;
    longest_restore_s = std::max(longest_restore_s, seconds);
  }
};
// The bound of a list schedule (Graham) at this pace.
double predicted_s(const ReplaySums& sums, uint32_t jobs, const Pace& pace);

// How many times of starting an interval are in a replay of so many.
double starts(uint64_t intervals, uint32_t jobs);
// What it takes to begin a replay, to start its intervals, and for messages between them.
double overhead_s(uint64_t intervals, uint64_t messages, uint32_t jobs, const Pace& pace);

// The bound of a list schedule, including restores: these are work too, and the longest path begins with one. Added is
// what the work and the longest path may be longer because times of events are not exact. The errors of different
// intervals are independent, so for the work they add up as squares.
PredictedReplay predict(const Plan& plan, const ReplayCosts& costs);
// Plans every interval of a graph that has been read whole. An interval that cannot be planned is left out: nothing
// that was recorded leads to it. Fails if all plans together would have more intervals and messages than `most_work`:
// where a policy limits no replay, that grows with the square of the recording. The default takes half a minute or so.
inline constexpr uint64_t kMostPlanned = 300'000'000;
Result<std::vector<PredictedReplay>> predict_all(const Rdg& graph, const ReplayCosts& costs,
                                                 uint64_t most_work = kMostPlanned);
Certificate certify(const std::vector<PredictedReplay>& replays, double bound_s, const ReplayCosts& costs);

// The certificate of a trace in which everything together takes less than half of the bound: nothing needs to be
// planned. None if it takes more.
std::optional<Certificate> certify_sum(const Trace& trace);

// What is known: the certificate that the trace has, or needs none of (certify_sum). None if the trace promises
// nothing, or has none because its recorder was killed, or it was changed since.
Result<std::optional<Certificate>> certificate_of(const Trace& trace);

// Whether both say the same of the same replays, up to rounding.
bool is_same_promise(const Certificate& a, const Certificate& b);

// One line for people. Empty if the bound is kept.
std::string describe_over(const Trace& trace, const Certificate& certificate);
// "203 ms at most (3:1), predicted with 2 jobs, at 1.02 times what was recorded (3 replays took 0.98 to 1.05)"
std::string describe_basis(const Certificate& certificate);

}  // namespace redrive
