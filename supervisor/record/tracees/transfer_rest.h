// What is left of a call that transfers bytes, and that the kernel has ended early because the thread was woken.
//
// While a blocking write(2), or a receive that waits for more than one byte, sleeps amid its bytes, whatever wakes the
// thread ends it with what it has transferred so far (signal(7)). Some calls that do not sleep look for that, too:
// getrandom(2), reads of /dev/zero and /dev/urandom, and those that copy files. A program sees that only if a handler
// runs. The recorder, and signals that are ignored, wake tracees too; then the rest is transferred by another call, and
// both are one for the program.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <optional>

#include "base/remote.h"

namespace redrive {

struct TransferRest {
  int64_t number = 0;  // of the call that transfers it, or a part of it
  std::array<uint64_t, 6> args{};
};

// `moved`: the bytes that were transferred, or of recvmmsg(2) and sendmmsg(2) the messages; `memory`: the caller's.
// Nothing if none are left, or the call is none that can be continued so. The last message of sendmmsg may have been
// sent in part: then its rest comes first, by sendto(2).
std::optional<TransferRest> rest_of_transfer(int64_t number, const std::array<uint64_t, 6>& args, const Memory& memory,
                                             uint64_t moved);
// Whether such a call may have ended early because the thread was woken, whatever it has transferred. `file`: what its
// first argument names, if that is a descriptor.
bool ends_when_woken(int64_t number, const struct stat& file);

// How many bytes a receive waits for, if its buffers hold them: those that a terminal without lines is set to
// (termios(3), VMIN), or a stream socket (SO_RCVLOWAT), from which all are waited for with MSG_WAITALL. 0: it ends with
// what is there. `process`: a pidfd of the caller's.
uint64_t least_received(int64_t number, const std::array<uint64_t, 6>& args, int process);

}  // namespace redrive
