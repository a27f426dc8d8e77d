// System calls that a stopped thread of a process to live makes for us, at the instruction that it has for that
// (kLiveGate).
#pragma once

#include <initializer_list>
#include <string>

#include "base/remote.h"
#include "base/result.h"

namespace redrive {

class LiveCalls {
 public:
  LiveCalls(pid_t tid, const Memory& memory) : tid_(tid), memory_(memory) {}

  // Returns the kernel's result. An Error: the thread is gone.
  Result<int64_t> call(long number, std::initializer_list<uint64_t> args);
  // Fails if the call does. `doing` completes "cannot ...".
  Result<int64_t> must(const std::string& doing, long number, std::initializer_list<uint64_t> args);
  // Puts bytes where a call can read them, and returns their address. There is one such place.
  Result<uint64_t> put(const void* bytes, size_t size);
  // A thread that the last call has made, by the number by which we know it; -1 or 0: none.
  pid_t made() const { return made_; }

 private:
  const pid_t tid_;
  const Memory& memory_;
  pid_t made_ = -1;
};

}  // namespace redrive
