#include "supervisor/record/kernel/signal_turns.h"

#include <algorithm>

#include "supervisor/record/kernel/tracer.h"

namespace redrive {
namespace {

// More levels than handlers that interrupt each other. Older ones were left by siglongjmp(3).
constexpr size_t kMostLevels = 64;

}  // namespace

bool SignalTurns::must_wait(const siginfo_t& info) const { return !is_queued(info) && has_had(info.si_signo); }

bool SignalTurns::has_had(int signal) const { return levels_.back().had & bit_of(signal); }

void SignalTurns::has_now(int signal) { levels_.back().had |= bit_of(signal); }

void SignalTurns::handler_starts(int signal, Address frame) {
  has_now(signal);
  if (levels_.size() == kMostLevels) levels_.erase(levels_.begin());
  levels_.push_back({frame, 0});
}

void SignalTurns::handler_returns(Address stack_pointer) {
  // The handler's own return has taken its address from the frame.
  const Address frame = stack_pointer - sizeof(uint64_t);
  const auto level = std::find_if(levels_.rbegin(), levels_.rend(), [&](const Level& l) { return l.frame == frame; });
  if (level == levels_.rend()) return;
  levels_.erase(std::prev(level.base()), levels_.end());
  if (levels_.empty()) levels_.emplace_back();
}

}  // namespace redrive
