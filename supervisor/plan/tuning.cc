#include "supervisor/plan/tuning.h"

#include <fmt/format.h>

namespace redrive {
namespace {

// On two processors, the time of a replay of several units depends on the sum of their work, not only on the longest
// path. So the path may take only this part of the bound. Checkpoints are twice as frequent.
constexpr double kPathOfBound = 0.3;
constexpr double kPapersPathOfBound = 1.25;
constexpr double kPeriodOfPath = 0.5;
constexpr double kLeastPeriod_s = 0.02;  // checkpoints closer than this cost more than they save

// The shortest bound for which checkpoints are this far apart.
double bound_for_period_s(TuningRule rule, double period_s, double restore_s) {
  const double path_s = period_s / kPeriodOfPath;
  return rule == TuningRule::paper ? path_s / kPapersPathOfBound : path_s / kPathOfBound + restore_s;
}

}  // namespace

Result<Tuning> tune(TuningRule rule, double bound_s, std::optional<double> critical_path_s,
                    std::optional<double> period_s, double restore_s) {
  Tuning tuning;
  tuning.restore_s = restore_s;
  tuning.critical_path_s = critical_path_s.value_or(
      rule == TuningRule::paper ? kPapersPathOfBound * bound_s : kPathOfBound * (bound_s - tuning.restore_s));
  tuning.period_s = period_s.value_or(kPeriodOfPath * tuning.critical_path_s);
  if (!period_s && tuning.period_s < kLeastPeriod_s) {
    return Error{fmt::format("a bound of {:g} s cannot be kept here; the shortest that can is {:.3g} s", bound_s,
                             bound_for_period_s(rule, kLeastPeriod_s, tuning.restore_s)),
                 Status::usage};
  }
  return tuning;
}

}  // namespace redrive
