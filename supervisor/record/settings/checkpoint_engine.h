// Whether redrive itself or CRIU reads the pages of copies for images.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"

namespace redrive {

// The CPU time that it takes CRIU to dump a process, as it was measured on this host.
struct CriuCost {
  double dump_s = 0;      // whatever its size
  double megabyte_s = 0;  // in addition, for each
};

struct CheckpointEngine {
  enum class Kind : uint8_t { own, criu, automatic };
  Kind kind = Kind::own;
  std::optional<CriuCost> cost;  // for automatic; own if it is not known

  // Whether CRIU is to dump a process with so much private memory that has a checkpoint after so much CPU time.
  bool chooses_criu(uint64_t bytes, uint64_t period_ns) const {
    constexpr double kMostShare = 0.02;  // of the recorded CPU time
    if (kind != Kind::automatic) return kind == Kind::criu;
    return cost &&
           cost->dump_s + cost->megabyte_s * static_cast<double>(bytes) / 1e6 <= kMostShare * seconds(period_ns);
  }
};

}  // namespace redrive
