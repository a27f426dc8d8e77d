#include "supervisor/replay/cpu_patience.h"

#include <fmt/format.h>

#include "base/units.h"

namespace redrive {
namespace {

// This much, plus this many times what the recording took. No machine is as slow as that.
constexpr uint64_t kAlwaysNs = 10'000'000'000;
constexpr uint64_t kTimesRecorded = 100;

uint64_t limit_ns(uint64_t recorded_ns) { return kAlwaysNs + kTimesRecorded * recorded_ns; }

}  // namespace

CpuPatience::CpuPatience(uint64_t recorded_ns) : recorded_ns_(recorded_ns) {}

bool CpuPatience::is_over(ProcessSerial process, uint64_t stops, uint64_t cpu_ns) {
  const bool searches = since_ && !since_->stops;
  const bool same = since_ && since_->process == process && (searches || since_->stops == stops);
  if (!same) since_ = {process, searches ? std::nullopt : std::optional(stops), cpu_ns};
  return cpu_ns - since_->cpu_ns > limit_ns(recorded_ns_);
}

void CpuPatience::begin_search(ProcessSerial process, uint64_t cpu_ns) { since_ = {process, std::nullopt, cpu_ns}; }

std::string CpuPatience::text() const {
  return fmt::format("{:.0f} s of CPU time ({:.3f} s when recorded)", seconds(limit_ns(recorded_ns_)),
                     seconds(recorded_ns_));
}

}  // namespace redrive
