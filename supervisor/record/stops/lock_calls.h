// Locks with priority inheritance (futex(2), FUTEX_LOCK_PI): the kernel writes their words. What it writes when a call
// takes or releases a lock is an output of that call, and no other thread of the unit runs meanwhile. A thread that has
// to wait marks the word first, which its owner sees before that call is over: the mark is an event of its own. The
// thread that releases the lock hands it over, so those that wait write nothing.
#pragma once

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class LockCalls {
 public:
  LockCalls(Tracer& tracer) : tracer_(tracer) {}

  // At the entry of a call that takes a lock or gives it back: whether it will sleep. Then the word is marked.
  bool waits_for_lock(Thread& thread);
  // The thread has been let into the kernel: waits until it sleeps there, where the thread that releases the lock finds
  // it, or until the call is over.
  void let_sleep(const Thread& thread);

 private:
  Tracer& tracer_;
};

}  // namespace redrive
