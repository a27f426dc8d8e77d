#include "supervisor/record/kernel/signal_turns.h"

#include <algorithm>
#include <utility>

#include "supervisor/record/kernel/tracer.h"

namespace redrive {
namespace {

// More than handlers that interrupt each other, and user-level threads that a signal switches. Older ones were left by
// siglongjmp(3).
constexpr size_t kMostHandlers = 64;

}  // namespace

bool SignalTurns::must_wait(const siginfo_t& info) const { return !is_queued(info) && has_had(info.si_signo); }

bool SignalTurns::has_had(int signal) const { return had_.signals & bit_of(signal); }

void SignalTurns::has_now(int signal) { had_.signals |= bit_of(signal); }

void SignalTurns::comes_to_call() { had_.signals &= ~std::exchange(had_.elsewhere, 0); }

void SignalTurns::handler_starts(int signal, Address frame, bool before_call) {
  has_now(signal);
  if (!before_call) had_.elsewhere |= bit_of(signal);
  if (handlers_.size() == kMostHandlers) handlers_.erase(handlers_.begin());
  handlers_.push_back({frame, std::exchange(had_, {})});
}

void SignalTurns::handler_returns(Address stack_pointer) {
  // The handler's own return has taken its address from the frame.
  const Address frame = stack_pointer - sizeof(uint64_t);
  const auto handler =
      std::find_if(handlers_.rbegin(), handlers_.rend(), [&](const Handler& h) { return h.frame == frame; });
  if (handler == handlers_.rend()) return;
  had_ = handler->had;
  handlers_.erase(std::prev(handler.base()));
}

}  // namespace redrive
