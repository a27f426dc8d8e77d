#include "supervisor/record/kernel/interval_clock.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

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
  drained_ns_ = replay_ns_ = error_ns_ = 0;
}

uint64_t IntervalClock::event_ns() {
  const uint64_t now_ns = interval_ns();
  if (served_ns_) {
    const uint64_t at_ns = std::clamp(now_ns, stretch_.from_ns, stretch_.to_ns);
    error_ns_ = std::max({error_ns_, at_ns - stretch_.from_ns, stretch_.to_ns - at_ns});
  } else {
    drained_ns_ = now_ns;
  }
  return now_ns;
}

void IntervalClock::add_replay(uint64_t ns) {
  replay_ns_ += ns;
  if (!served_ns_) return;
  replay_before_ns_ += ns;
  drained_ns_ += ns;
  stretch_.from_ns += ns;
  stretch_.to_ns += ns;
  *served_ns_ += ns;
}

// The next stretch ends with this reading.
void IntervalClock::go_to(const Reading& reading) {
  stretch_.from = stretch_.to;
  stretch_.from_ns = stretch_.to_ns;
  stretch_.to = reading;
  stretch_.to_ns = std::max(stretch_.from_ns, reading.cpu_ns + replay_before_ns_ + reading.calls * call_ns_);
}

void IntervalClock::begin_served(std::vector<Reading> readings, uint64_t call_ns) {
  ASSERT(!readings.empty());
  readings_ = std::move(readings);
  next_reading_ = 0;
  call_ns_ = call_ns;
  made_ = 0;
  replay_before_ns_ = replay_ns_;
  replay_ns_ += readings_.back().calls * call_ns;
  const uint64_t now_ns = readings_.back().cpu_ns + replay_ns_;
  stretch_ = {};
  stretch_.to_ns = std::min(drained_ns_, now_ns);
  go_to(readings_[next_reading_++]);
  served_ns_ = stretch_.from_ns;
  drained_ns_ = now_ns;
}

void IntervalClock::next_served() {
  ++made_;
  while (made_ > stretch_.to.calls && next_reading_ < readings_.size()) go_to(readings_[next_reading_++]);
  const uint64_t calls = stretch_.to.calls - stretch_.from.calls;
  const uint64_t step_ns = (stretch_.to_ns - stretch_.from_ns) / (calls + 1);
  served_ns_ = stretch_.from_ns + step_ns * (made_ - std::min(made_, stretch_.from.calls));
}

}  // namespace redrive
