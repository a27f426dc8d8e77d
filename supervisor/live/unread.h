// Bytes that have arrived at a pipe or socket of a process and that nobody has read.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

namespace redrive {

class Unread {
 public:
  enum class End : uint8_t {
    receiver,  // the descriptor is where they arrive
    sender,    // it is the other end, of a socket, because the connection is not accepted yet
  };
  // What has arrived at a process's descriptor, or at its other end. The process may be traced.
  static Result<Unread> of(pid_t pid, int descriptor, End end);

  // Of datagrams, 1 if there are some.
  uint64_t bytes() const;

 private:
  Unread(Fd fd, End end) : fd_(std::move(fd)), end_(end) {}

  Fd fd_;  // a copy
  End end_;
};

}  // namespace redrive
