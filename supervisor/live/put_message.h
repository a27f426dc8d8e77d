// Puts messages that were on their way into pipes and sockets, without waiting.
#pragma once

#include <cstddef>

#include "supervisor/live/live_spec.h"

namespace redrive {

struct Put {
  size_t bytes = 0;  // how many it has taken
  int error = 0;     // why it has not taken the others, or the empty message
};

// `to`: the address of a datagram; empty: where it is connected to.
Put put_bytes(int from, const Bytes& to, const Bytes& bytes);
// A UNIX socket takes it whatever the size of its buffer, as far as the user may change that, which is the same after
// it.
Put put_message(int from, const Bytes& to, const LiveMessage& message);
// Receives an urgent byte (send(2), MSG_OOB), so that only its place is left.
void take_urgent(int at);

}  // namespace redrive
