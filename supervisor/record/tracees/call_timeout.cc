#include "supervisor/record/tracees/call_timeout.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace redrive {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

bool is_in_register(const SyscallRow& row) {
  return row.args[static_cast<size_t>(row.timeout_arg)].kind == ArgKind::val;
}

// How long the call may sleep, relative to its entry; nothing if there is no limit, or if the kernel knows it even when
// the call is entered again.
std::optional<std::chrono::nanoseconds> timeout_of(const CallTimeout::Call& call) {
  if (!call.row || call.row->timeout_arg < 0) return {};
  const auto arg = static_cast<size_t>(call.row->timeout_arg);
  const uint64_t value = call.args[arg];
  if (is_in_register(*call.row)) {
    const auto ms = static_cast<int32_t>(value);
    if (ms < 0) return {};
    return std::chrono::milliseconds(ms);
  }
  timespec timeout{};
  if (call.row->args[arg].kind != ArgKind::in || !value || !call.memory.get(value, timeout)) return {};
  constexpr time_t kForever_s = 1'000'000'000;
  if (timeout.tv_sec < 0 || timeout.tv_sec > kForever_s) return {};
  return std::chrono::seconds(timeout.tv_sec) + std::chrono::nanoseconds(timeout.tv_nsec);
}

}  // namespace

std::optional<uint64_t> CallTimeout::enter(const Call& call, Clock::time_point now) {
  entered_at_ = now;
  if (!std::exchange(enters_again_, false)) deadline_.reset(), ends_at_.reset();
  if (!deadline_ || !timeout_of(call)) return {};
  const auto left = std::max(std::chrono::nanoseconds(*deadline_ - now), std::chrono::nanoseconds(0));
  if (is_in_register(*call.row)) {
    shortened_ = true;
    return static_cast<uint64_t>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
  }
  Own own{call.args[static_cast<size_t>(call.row->timeout_arg)], {}};
  const timespec shorter{left.count() / kSecond, left.count() % kSecond};
  if (call.memory.get(own.at, own.timeout) && call.memory.put(own.at, shorter)) own_ = own;
  return {};
}

void CallTimeout::enters_again(const Call& call, std::optional<std::chrono::nanoseconds> of_socket) {
  if (!deadline_) {
    if (const auto timeout = timeout_of(call)) deadline_ = entered_at_ + *timeout;
  }
  if (!ends_at_ && of_socket) ends_at_ = entered_at_ + *of_socket;
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

std::optional<CallTimeout::Own> CallTimeout::take_own() { return std::exchange(own_, std::nullopt); }

}  // namespace redrive
