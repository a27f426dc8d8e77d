// Options of getsockopt(2) that write other memory than their length says. Used by the syscall table and by the code
// inside tracees.
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace redrive {

// How many bytes one counts for in an option's length: a filter's length is its number of instructions.
constexpr uint64_t option_unit(uint64_t level, uint64_t name) {
  constexpr uint64_t kInstruction = 8;  // sizeof(sock_filter)
  const bool filter = static_cast<int>(level) == SOL_SOCKET && static_cast<int>(name) == SO_GET_FILTER;
  return filter ? kInstruction : 1;
}

// Whether an option maps memory, or writes where pointers in its structure lead.
constexpr bool option_writes_elsewhere(uint64_t level, uint64_t name) {
  constexpr struct {
    int level, name;
  } kOptions[] = {
      {0, 129},  // IPPROTO_IP, EBT_SO_GET_ENTRIES
      {0, 131},  // IPPROTO_IP, EBT_SO_GET_INIT_ENTRIES
      {6, 35},   // IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE
      {284, 4},  // SOL_MPTCP, MPTCP_FULL_INFO
  };
  for (const auto& option : kOptions) {
    if (option.level == static_cast<int>(level) && option.name == static_cast<int>(name)) return true;
  }
  return false;
}

}  // namespace redrive
