// Locks with priority inheritance (futex(2), FUTEX_LOCK_PI): the kernel writes their words. What it writes when a call
// takes or releases a lock is an output of that call, and nobody else of the unit runs meanwhile. A thread that has to
// wait marks the word first, which its owner sees before that call is over: the mark is an event of its own. The thread
// that releases the lock hands it over, so those that wait write nothing.
#include <linux/futex.h>
#include <sched.h>

#include <cstring>

#include "supervisor/record/recorder.h"
#include "supervisor/tier/registers.h"

namespace redrive {

// At the entry of a call that takes a lock or gives it back: whether it will sleep. Then the word is marked.
bool Recorder::waits_for_lock(Thread& thread) {
  const Memory& memory = thread.process->memory;
  const Address at = thread.args[0];
  uint32_t word = 0;
  if (!thread.row->may_block || !memory.get(at, word)) return false;
  const auto owner = static_cast<pid_t>(word & FUTEX_TID_MASK);
  if (!owner || owner == pid_in_own_namespace(thread.tid)) return false;
  if (word & FUTEX_WAITERS) return true;
  word |= FUTEX_WAITERS;
  if (!memory.put(at, word)) return false;
  MemoryWrite mark{at, sizeof word, MemoryWrite::Kind::data, Bytes(sizeof word)};
  std::memcpy(mark.data.data(), &word, sizeof word);
  thread.process->written.push_back(std::move(mark));
  add_written(thread, before_syscall(thread.entry), SignalPoint::before_syscall);
  return true;
}

// The thread has been let into the kernel: until it sleeps there, where who releases the lock finds it, or the call is
// over.
void Recorder::let_sleep(const Thread& thread) {
  while (!sleeps(thread.tid) && !tracer_.has_stopped(thread.tid)) sched_yield();
}

}  // namespace redrive
