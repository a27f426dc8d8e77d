// From a bound to the critical-path limit C and the checkpoint period T.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"

namespace redrive {

enum class TuningRule : uint8_t {
  promise,  // every replay within the bound, restore included
  paper,    // Netzer et al.: C = 1.25 times the bound; replays take 0.8 C in the mean, and up to 2 C
};

struct Tuning {
  double critical_path_s = 0;
  double period_s = 0;
  double restore_s = 0;  // to make an empty stub ready: the part of a restore that does not depend on the program
};
// Derives C and T, unless they are given. `restore_s`: as in Tuning (measure_spawn_s()). Fails with Status::usage if
// the bound cannot be kept, and says which one can.
Result<Tuning> tune(TuningRule rule, double bound_s, std::optional<double> critical_path_s,
                    std::optional<double> period_s, double restore_s);

// The shortest bound for which checkpoints come this far apart.
double bound_for_period_s(TuningRule rule, double period_s, double restore_s);

}  // namespace redrive
