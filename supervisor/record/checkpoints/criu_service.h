// CRIU as a service (criu(8), service) that dumps processes one after the other, for the thread that starts it. Nothing
// of it is written to a disk, and nothing is left of it if the recorder is killed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

namespace redrive {

class CriuService {
 public:
  static Result<CriuService> start();
  CriuService(CriuService&& other) noexcept : pid_(std::exchange(other.pid_, -1)), place_(std::move(other.place_)) {}
  CriuService& operator=(CriuService&&) = delete;
  ~CriuService() { end(); }

  // Dumps a process, which nobody traces; it goes on as it was. Returns the directory with its images, which is in
  // memory, and gone when it is closed. The error is CRIU's first one. A service that makes no progress is killed; it
  // dumps nothing then.
  Result<Fd> dump(pid_t pid);
  // Ends it. Returns the CPU time that it has used, in nanoseconds.
  uint64_t end();

 private:
  CriuService(pid_t pid, Fd place) : pid_(pid), place_(std::move(place)) {}

  pid_t pid_;
  Fd place_;  // the directory with its socket
};

}  // namespace redrive
