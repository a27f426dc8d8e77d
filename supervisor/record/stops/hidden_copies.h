// Keeps programs from finding, by wait(2), the copies of them that checkpoints need (CheckpointCopies). A copy is a
// child without an exit signal: it is found by who waits for children of all kinds (__WALL), or of that kind
// (__WCLONE). Such a wait stops, and if it has found a copy it is made again. If it does not sleep (WNOHANG) and there
// are only copies that have not ended, it fails as if there were none (ECHILD).
#pragma once

#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class HiddenCopies {
 public:
  // The thread's call is about to be made.
  static void enter(Thread& thread);
  // What the call returns to the program, or what has the kernel make it again.
  static int64_t result(Thread& thread, int64_t result);
  // Notes in the event of a call that is made again what is where it had written: an image may have been taken
  // meanwhile.
  static void leave(Thread& thread, Event& event);
  // A copy of the process is about to be reaped. A thread may have found it already.
  static void forget(Process& process, pid_t copy);
};

}  // namespace redrive
