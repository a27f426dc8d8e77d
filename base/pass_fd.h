// A descriptor, passed to another process over a socket (unix(7), SCM_RIGHTS).
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "base/page.h"

namespace redrive {

// With one byte. False, with errno, if it could not be sent.
bool pass_fd(int socket, int fd);

// What recvmsg(2) is told by a process that receives one, in its memory.
struct Receiving {
  msghdr message;
  iovec piece;
  uint64_t byte;
  uint8_t head[sizeof(cmsghdr)];
  uint64_t descriptor;  // of which the kernel writes the low half

  // As it is to lie at this address, where the message comes first.
  static Receiving at(Address address);
};
static_assert(sizeof(Receiving) - offsetof(Receiving, head) == CMSG_SPACE(sizeof(int)));

}  // namespace redrive
