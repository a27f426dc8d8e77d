// The object behind a descriptor that a call makes. Used by the syscall table and by the code inside tracees.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace redrive {

enum class NewDescriptor : uint8_t {
  none,        // the call makes no descriptor, or one that must be examined
  file,        // a file of any type; its mode tells which
  no_channel,  // something that carries no messages
  copy,        // the same object as behind argument 0
  socket,      // a socket of the domain and type in arguments 0 and 1
  pair,        // two sockets that are connected to each other, stored at argument 3
  accepted,    // one end of a connection
  connected,   // no new descriptor: argument 0 becomes one end of a connection
  pipe,        // two descriptors of one pipe, stored at argument 0
};

// Whether a file of this mode can carry messages between units.
constexpr bool may_be_channel(uint32_t mode) { return S_ISFIFO(mode) || S_ISSOCK(mode); }

}  // namespace redrive
