#include "supervisor/record/tracees/patience.h"

#include <algorithm>
#include <utility>

namespace redrive {
namespace {

constexpr uint64_t kGivenUpNs = 2'000'000'000;  // from when an event was due until the recording says that this fails
constexpr uint64_t kRetryNs = 1'000'000;        // ... from one try to stop the thread until the next

}  // namespace

Patience::Answer Patience::look(Due due, uint64_t cpu_ns, bool can_stop) {
  if (!due_since_ns_) due_since_ns_ = cpu_ns;
  const uint64_t late_ns = cpu_ns - *due_since_ns_;
  // With at_once, a thread that was asked only just now still stops at its next call.
  if (!can_stop || late_ns < (due == Due::at_once ? 1 : patience_ns_)) return {};
  Answer answer;
  answer.gave_up = due == Due::soon && late_ns > kGivenUpNs && !std::exchange(gave_up_, true);
  // Any other stop takes the interrupt back (ptrace_stop(), kernel/signal.c).
  answer.interrupt = cpu_ns - interrupted_ns_ >= kRetryNs;
  if (answer.interrupt) interrupted_ns_ = cpu_ns;
  return answer;
}

void Patience::stopped(const Used& used, uint64_t pause_ns) {
  const Used before = std::exchange(used_, used);
  if (used.cpu_ns < before.cpu_ns || used.faults_ns < before.faults_ns) return;  // processes have ended
  const uint64_t time_ns = used.cpu_ns - before.cpu_ns + pause_ns;
  const uint64_t lost_ns = used.faults_ns - before.faults_ns + pause_ns;
  if (lost_ns > time_ns / 2) patience_ns_ = std::min(2 * patience_ns_, kMostNs);
  if (lost_ns < time_ns / 8) patience_ns_ = std::max(patience_ns_ / 2, kLeastNs);
}

}  // namespace redrive
