// An execution with a policy's decisions: where its intervals begin, and which payloads are kept.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace redrive {

struct Decided {
  struct Interval {
    uint32_t unit = 0;
    uint64_t start_ns = 0;  // CPU time since the unit's beginning
    uint64_t end_ns = 0;
    std::optional<uint32_t> birth;  // the fork that must be executed again for it
    double restore_s = 0;
    uint64_t cpu_ns() const { return end_ns - start_ns; }
  };
  std::vector<Interval> intervals;    // those of a unit in ascending order
  std::vector<uint32_t> interval_of;  // by step
  std::vector<bool> kept;             // by step: receives and births
  uint64_t checkpoints = 0;           // images, that is, without those at the start of programs
  uint64_t forced_checkpoints = 0;    // how many of these the policy asked for
};

}  // namespace redrive
