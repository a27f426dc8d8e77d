// The process that the user starts, if a recording attaches to others: the parent of the recorder. What the recorder
// has taken from the recorded processes stays away if it is killed, and would end some of them. The guard gives it
// back.
#pragma once

#include <sys/types.h>
#include <sys/user.h>

#include <optional>

#include "base/result.h"
#include "supervisor/record/attachable.h"

namespace redrive {

// Makes a child, in which this returns nothing: the recorder. In the guard it returns when the recorder has ended, with
// its exit status; if it was killed, with an error, after the processes were healed. Signals that let the processes go
// are passed on to the recorder; if the guard is killed, the recorder gets SIGTERM.
Result<std::optional<int>> guard_recorder(const AttachableTree& tree);

// The functions below are for the recorder, and do nothing if it has no guard.

// In the thread that guard_recorder() has returned in: it traces nobody any more.
void release_guard();
// The thread is about to make a call for the recorder. If that is killed during it, the guard gives these registers and
// this signal mask back to the thread.
void note_injected(pid_t tid, const user_regs_struct& regs, uint64_t mask);
// It has them again.
void forget_injected();
// The process is recorded, and has not run yet since it was born. The guard stops it at once if the recorder is killed.
void note_recorded(pid_t pid);
// It has ended.
void forget_recorded(pid_t pid);

}  // namespace redrive
