#include "supervisor/plan/tuning.h"

#include <fmt/format.h>

#include "base/units.h"

namespace redrive {
namespace {

constexpr double kLeastPeriod_s = 0.02;  // checkpoints closer than this cost more than they save

// C is this part of a bound, and T this part of C.
struct Parts {
  double path;
  double period;
};

// A policy that knows of processors promises a time that includes all work and all restores; what it predicts has
// errors. Others promise a path, and on two processors the time of a replay of several units depends on the sum of
// their work. So for the same bound, T is the same.
Parts parts_of(TuningRule rule, bool for_processors) {
  if (rule == TuningRule::paper) return {1.25, 0.5};
  return for_processors ? Parts{0.8, 0.1875} : Parts{0.3, 0.5};
}

}  // namespace

Result<Tuning> tune(const TuningRequest& wanted, double bound_s, double restore_s) {
  const Parts parts = parts_of(wanted.rule, wanted.for_processors);
  const double unavoidable_s = wanted.rule == TuningRule::paper ? 0 : restore_s;
  Tuning tuning;
  tuning.restore_s = restore_s;
  tuning.critical_path_s = wanted.critical_path_s.value_or(parts.path * (bound_s - unavoidable_s));
  tuning.period_s = wanted.period_s.value_or(parts.period * tuning.critical_path_s);
  const bool too_close = !wanted.period_s && tuning.period_s < kLeastPeriod_s;
  if (too_close && wanted.critical_path_s) {
    return Error{
        fmt::format("a critical path of {} cannot be kept here, by checkpoints at least {} apart; the shortest "
                    "that can is {}",
                    format_duration(*wanted.critical_path_s), format_duration(kLeastPeriod_s),
                    format_duration(kLeastPeriod_s / parts.period)),
        Status::usage};
  }
  if (wanted.for_path && wanted.critical_path_s && tuning.period_s > tuning.critical_path_s) {
    return Error{fmt::format("a critical path of {} cannot be kept by checkpoints that are {} apart",
                             format_duration(tuning.critical_path_s), format_duration(tuning.period_s)),
                 Status::usage};
  }
  if (tuning.critical_path_s <= 0 || too_close) {
    return Error{fmt::format("a bound of {} cannot be kept here; the shortest that can is {}", format_duration(bound_s),
                             format_duration(kLeastPeriod_s / parts.period / parts.path + unavoidable_s)),
                 Status::usage};
  }
  return tuning;
}

}  // namespace redrive
