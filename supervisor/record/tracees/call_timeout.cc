#include "supervisor/record/tracees/call_timeout.h"

#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace redrive {
namespace {

bool is_in_register(const SyscallRow& row) {
  return row.timeout_arg >= 0 && row.args[static_cast<size_t>(row.timeout_arg)].kind == ArgKind::val;
}

// How long the call may sleep by its argument, relative to its entry; nothing if there is no limit.
std::optional<std::chrono::nanoseconds> timeout_of(const CallTimeout::Call& call) {
  if (!call.row || call.row->timeout_arg < 0) return {};
  const uint64_t value = call.args[static_cast<size_t>(call.row->timeout_arg)];
  if (is_in_register(*call.row)) {
    const auto ms = static_cast<int32_t>(value);
    if (ms < 0) return {};
    return std::chrono::milliseconds(ms);
  }
  timespec timeout{};
  if (!value || !call.memory.get(value, timeout)) return {};
  constexpr time_t kForever_s = 1'000'000'000;
  if (timeout.tv_sec < 0 || timeout.tv_sec > kForever_s) return {};
  const bool in_us = call.row->number == SYS_select;  // this one has a timeval
  return std::chrono::seconds(timeout.tv_sec) + std::chrono::nanoseconds(timeout.tv_nsec) * (in_us ? 1000 : 1);
}

}  // namespace

std::optional<uint64_t> CallTimeout::enter(const Call& call, Clock::time_point now) {
  entered_at_ = now;
  if (!std::exchange(enters_again_, false)) ends_at_.reset();
  if (!ends_at_ || !call.row || !is_in_register(*call.row)) return {};
  shortened_ = true;
  const auto left = std::max(std::chrono::nanoseconds(*ends_at_ - now), std::chrono::nanoseconds(0));
  return static_cast<uint64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

void CallTimeout::enters_again(const Call& call, std::optional<std::chrono::nanoseconds> of_socket) {
  if (!ends_at_) {
    const auto own = timeout_of(call);
    if (const auto length = own ? own : of_socket) ends_at_ = entered_at_ + *length;
  }
  enters_again_ = true;
}

void CallTimeout::goes_on(Clock::time_point now, std::optional<std::chrono::nanoseconds> of_socket) {
  ends_at_.reset();
  if (of_socket) ends_at_ = now + *of_socket;
}

void CallTimeout::left() {
  if (!enters_again_) ends_at_.reset();
}

bool CallTimeout::take_shortened() { return std::exchange(shortened_, false); }

}  // namespace redrive
