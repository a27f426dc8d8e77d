// What procfs says of a thread or process that has not ended (proc_pid_status(5)). Any thread may ask, also about one
// that is not a tracee.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"

namespace redrive {

// A thread's signals, bit N-1 for signal N. All 0 if it has ended.
struct SignalMasks {
  uint64_t pending = 0;  // for the thread or its process
  uint64_t blocked = 0;
  uint64_t ignored = 0;
  uint64_t caught = 0;
  bool init = false;  // of the first process of a PID namespace (pid_namespaces(7))

  uint64_t deliverable() const { return pending & ~blocked; }
};
SignalMasks signal_masks(pid_t tid);
constexpr uint64_t bit_of(int signal) { return uint64_t{1} << (signal - 1); }

// The number of a process in the PID namespace that it is in itself (NSpid); -1 if it has ended.
pid_t pid_in_own_namespace(pid_t pid);
// The number of its process group in the PID namespace that `viewer` is in; -1 if one of them has ended.
pid_t group_seen_by(pid_t viewer, pid_t pid);
// The children of all its threads, also ended ones. While a process ends, the kernel may leave out another child of its
// parent (proc(5), /proc/pid/task/tid/children).
std::vector<pid_t> children_of(pid_t pid);
// What its parent is sent when it ends; 0: nothing. -1 if it is not there any more.
int exit_signal(pid_t pid);
// Names a thread, also one that is not the first of its process (pidfd_open(2), PIDFD_THREAD). Invalid on kernels that
// cannot do that, before Linux 6.9.
Fd pidfd_of_thread(pid_t tid);
// Whether it sleeps in the kernel, and a signal could wake it.
bool sleeps(pid_t tid);
// Whether executing the file, which is described by `info`, would give it another user or group than it has
// (execve(2)).
bool would_gain(pid_t pid, const std::string& file, const struct stat& info);
// Whether executing the file would give it capabilities that it does not have (capabilities(7), File capabilities).
bool would_gain_capabilities(pid_t pid, const std::string& file);
// Whether this process may look into processes of other users (CAP_SYS_PTRACE).
bool may_look_into_all();
// Whether it may look into the process once that has executed a program that it may read (ptrace(2), Ptrace access mode
// checking).
bool may_look_into(pid_t pid);
// Whether its next child begins a PID namespace, or is in another one than it is itself (pid_namespaces(7)).
bool forks_into_namespace(pid_t pid);

}  // namespace redrive
