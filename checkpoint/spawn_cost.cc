#include "checkpoint/spawn_cost.h"

#include <chrono>

#include "checkpoint/stub.h"

namespace redrive {

Result<double> measure_spawn_s() {
  using Clock = std::chrono::steady_clock;
  const auto started = Clock::now();
  TRY(Stub::spawn_here());
  return std::chrono::duration<double>(Clock::now() - started).count();
}

}  // namespace redrive
