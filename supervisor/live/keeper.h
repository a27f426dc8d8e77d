// Makes the processes that are to live, each with what the kernel holds for it, in namespaces in which they have their
// numbers again; and waits for them. They wait for somebody to give them their memory and threads (Transplant).
//
// A process of one thread makes the namespaces (PID, mounts, time; without privilege also a user namespace with the
// same user) and a first process in them. That makes all objects and, by clone3(2) with set_tid, the processes, each by
// its parent. Each gives itself its descriptors, directory, signal actions and session.
//
// Or all is made so that it can be dumped: then nothing is in the tree that is not of the processes, but for a first
// process of a few instructions. In a PID namespace all numbers are free where it is restored. There is no mount
// namespace, because CRIU would have to make all the machine's mounts again. The keeper outlives redrive and ends all
// when a pipe is closed (lifeline_), because a death signal (PR_SET_PDEATHSIG) would be part of the checkpoint.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "supervisor/live/live_spec.h"

namespace redrive {

// For processes that are to be dumped.
struct DumpedKeep {
  std::string group;  // the directory of the control group that all join
  std::string init;   // the program of the first process
};

class Keeper {
 public:
  // `shared`: descriptors of shared memory, which the processes have open with the numbers that shared_number() tells.
  static Result<std::unique_ptr<Keeper>> start(const LiveSpec& spec, const std::vector<int>& shared,
                                               const std::optional<DumpedKeep>& dumped);
  ~Keeper();  // ends all that still run
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  pid_t pid(size_t process) const { return pids_[process]; }  // by which we know it; -1: it has ended
  // After the last of them comes the socket by which processes report.
  int shared_number(size_t index) const { return first_number_ + static_cast<int>(index); }
  // The message that was to be the first has been received: what was withheld comes now.
  Result<void> put_withheld();
  // That are to be dumped, and have their memory: the first process of the PID namespace, once it is what it is to be.
  Result<pid_t> await_init();
  // Until all have ended. The status of the first, as shells have it.
  int wait();

 private:
  Keeper() = default;

  pid_t pid_ = -1;   // the process that has made the namespaces
  pid_t init_ = -1;  // the first of the PID namespace, if all are to be dumped
  Fd lifeline_;      // ... then they end with this
  Fd reports_;       // the socket on which processes report
  int first_number_ = 0;
  std::vector<pid_t> pids_;
};

// Where each waiting process has a syscall instruction, and a page to write to.
inline constexpr uint64_t kLiveGate = 0x70000000;

}  // namespace redrive
