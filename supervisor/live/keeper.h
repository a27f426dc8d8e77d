// Makes the processes that are to live, each with what the kernel holds for it, in namespaces in which they have their
// numbers again; and waits for them. They wait for somebody to give them their memory and threads (Transplant).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "supervisor/live/live_spec.h"

namespace redrive {

class Keeper {
 public:
  // `shared`: descriptors of shared memory, which the processes have open with the numbers that shared_number() tells.
  static Result<std::unique_ptr<Keeper>> start(const LiveSpec& spec, const std::vector<int>& shared);
  ~Keeper();  // ends all that still run
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  pid_t pid(size_t process) const { return pids_[process]; }  // by which we know it; -1: it has ended
  // After the last of them comes the socket by which processes report.
  int shared_number(size_t index) const { return first_number_ + static_cast<int>(index); }
  // The message that was to be the first has been received: what was withheld comes now.
  Result<void> put_withheld();
  // Until all have ended. The status of the first, as shells have it.
  int wait();
  // They go on without us.
  void leave() { pid_ = -1; }

 private:
  Keeper() = default;

  pid_t pid_ = -1;  // the process that has made the namespaces
  Fd reports_;      // the socket on which processes report
  int first_number_ = 0;
  std::vector<pid_t> pids_;
};

// Where each waiting process has a syscall instruction, and a page to write to.
inline constexpr uint64_t kLiveGate = 0x70000000;

}  // namespace redrive
