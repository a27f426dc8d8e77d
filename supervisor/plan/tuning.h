// The critical-path limit C and the checkpoint period T for a bound.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"

namespace redrive {

enum class TuningRule : uint8_t {
  promise,  // every replay stays within the bound, including restores
  paper,    // Netzer et al.: C = 1.25 times the bound; replays take 0.8 C on average, and up to 2 C
};

struct Tuning {
  double critical_path_s = 0;
  double period_s = 0;
  double restore_s = 0;  // to make an empty stub ready: the part of a restore that does not depend on the program
};
struct TuningRequest {
  TuningRule rule = TuningRule::promise;
  bool for_processors = false;  // the policy promises the time on a number of processors, not only the longest path
  bool for_path = false;        // the policy promises one of these at all
  std::optional<double> critical_path_s = std::nullopt;  // given, not derived
  std::optional<double> period_s = std::nullopt;
};
// `restore_s`: as in Tuning (measure_spawn_s()). If the bound cannot be kept, fails with Status::usage and says which
// one can.
Result<Tuning> tune(const TuningRequest& wanted, double bound_s, double restore_s);

}  // namespace redrive
