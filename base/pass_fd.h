// Passing a descriptor to another process over a socket (unix(7), SCM_RIGHTS).
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "base/page.h"

namespace redrive {

// Sends the descriptor with one byte. False, with errno, if it could not be sent.
bool pass_fd(int socket, int fd);

// The arguments of recvmsg(2) in the memory of a process that receives a descriptor.
struct Receiving {
  msghdr message;
  iovec piece;
  uint64_t byte;
  uint8_t head[sizeof(cmsghdr)];
  uint64_t descriptor;  // the kernel writes its low half

  // The structure as it must lie at this address; the message header comes first.
  static Receiving at(Address address);
};
static_assert(sizeof(Receiving) - offsetof(Receiving, head) == CMSG_SPACE(sizeof(int)));

}  // namespace redrive
