// Copies what a unit writes to its standard output and error to ours (redrive replay --output).
#pragma once

#include <map>
#include <vector>

#include "base/result.h"
#include "interceptors/syscall_table.h"
#include "logstore/event.h"

namespace redrive {

class ShownOutput {
 public:
  // At a call's entry: what it is about to write is kept until its result says how much of it was written. `memory`:
  // the caller's, `read`: what the call reads of it.
  void call_begins(const Event& event, const SyscallRow& row, const std::vector<Span>& read, const Memory& memory);
  // At the call's end. Fails if it cannot be written to ours.
  Result<void> call_ends(ThreadSerial thread, int64_t result);

 private:
  struct Pending {
    int fd = -1;
    Bytes bytes;
  };
  std::map<ThreadSerial, Pending> pending_;
};

}  // namespace redrive
