#include "supervisor/record/tracees/patience.h"

#include <utility>

namespace redrive {
namespace {

// The time from when an event was first due until the thread is stopped where it is, and until the recording says that
// this fails.
constexpr uint64_t kPatienceNs = 10'000'000, kGivenUpNs = 2'000'000'000;
constexpr uint64_t kRetryNs = 1'000'000;  // ... until it is tried again

}  // namespace

Patience::Answer Patience::look(Due due, uint64_t cpu_ns, bool can_stop) {
  if (!due_since_ns_) due_since_ns_ = cpu_ns;
  const uint64_t late_ns = cpu_ns - *due_since_ns_;
  // With at_once, a thread that was asked only just now still stops at its next call.
  if (!can_stop || late_ns < (due == Due::at_once ? 1 : kPatienceNs)) return {};
  Answer answer;
  answer.gave_up = due == Due::soon && late_ns > kGivenUpNs && !std::exchange(gave_up_, true);
  // Any other stop takes the interrupt back (ptrace_stop(), kernel/signal.c).
  answer.interrupt = cpu_ns - interrupted_ns_ >= kRetryNs;
  if (answer.interrupt) interrupted_ns_ = cpu_ns;
  return answer;
}

}  // namespace redrive
