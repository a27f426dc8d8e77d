// What is behind a descriptor that a call makes: what the syscall table says, and the code inside tracees asks too.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace redrive {

enum class NewDescriptor : uint8_t {
  none,        // the call makes none, or one that must be looked at
  file,        // whatever has the name: its type tells
  no_channel,  // nothing that messages travel through
  copy,        // the same as behind argument 0
  socket,      // a socket of the domain and type that arguments 0 and 1 say
  accepted,    // one end of a connection
  connected,   // no new one: argument 0 becomes one end of a connection
  pipe,        // two of them, at argument 0, behind which the same pipe is
};

// Whether a file of this mode can carry messages between units.
constexpr bool may_be_channel(uint32_t mode) { return S_ISFIFO(mode) || S_ISSOCK(mode); }

}  // namespace redrive
