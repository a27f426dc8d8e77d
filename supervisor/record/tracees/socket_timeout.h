// The timeout of a call that is not one of its arguments, but an option of its socket (socket(7), SO_RCVTIMEO).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "interceptors/syscall_table.h"

namespace redrive {

struct SocketTimeout {
  std::chrono::nanoseconds length{};
  int error = 0;  // positive errno of the call's answer then
};

// `process`: a pidfd of the caller's. Nothing if the call is none at a socket, or may sleep for ever.
std::optional<SocketTimeout> socket_timeout(const SyscallRow& row, std::span<const uint64_t, 6> args, int process);

}  // namespace redrive
