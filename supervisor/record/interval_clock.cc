#include "supervisor/record/interval_clock.h"

#include <algorithm>

namespace redrive {

void IntervalClock::remove(pid_t pid) {
  const auto found = cpu_ns_.find(pid);
  if (found == cpu_ns_.end()) return;
  ended_ns_ += found->second;
  cpu_ns_.erase(found);
}

void IntervalClock::take(IntervalClock& other, pid_t pid) {
  const auto found = other.cpu_ns_.find(pid);
  cpu_ns_[pid] = found == other.cpu_ns_.end() ? 0 : found->second;
  other.remove(pid);
}

uint64_t IntervalClock::cpu_ns() {
  uint64_t sum = ended_ns_;
  for (auto& [pid, ns] : cpu_ns_) {
    ns = tracer_.cpu_ns(pid).value_or(ns);
    sum += ns;
  }
  return sum;
}

void IntervalClock::begin() {
  base_ns_ = cpu_ns();
  drained_ns_ = replay_ns_ = 0;
}

uint64_t IntervalClock::event_ns() {
  const uint64_t now_ns = interval_ns();
  if (!served_ns_) drained_ns_ = now_ns;
  return now_ns;
}

void IntervalClock::begin_served(uint64_t interval_cpu_ns, uint64_t calls, uint64_t call_ns) {
  replay_ns_ += calls * call_ns;
  const uint64_t now_ns = interval_cpu_ns + replay_ns_;
  const uint64_t from_ns = std::min(drained_ns_, now_ns);
  step_ns_ = (now_ns - from_ns) / (calls + 1);
  served_ns_ = from_ns;
  drained_ns_ = now_ns;
}

}  // namespace redrive
