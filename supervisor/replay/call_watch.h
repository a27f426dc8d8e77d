// Looks at what certain calls of re-driven units read, when they are made.
#pragma once

#include <vector>

#include "base/remote.h"
#include "interceptors/syscall_table.h"
#include "logstore/event.h"

namespace redrive {

// For several intervals that are re-driven at once: its functions may be called by several threads.
class CallWatch {
 public:
  virtual ~CallWatch() = default;
  virtual bool wants(EventRef call) const = 0;
  // `read`: what the call is about to read of the caller's memory.
  virtual void see(EventRef call, const std::vector<Span>& read, const Memory& memory) = 0;
};

}  // namespace redrive
