#include "supervisor/record/stops/lock_calls.h"

#include <linux/futex.h>
#include <sched.h>

#include <cstring>

#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/registers.h"

namespace redrive {

bool LockCalls::waits_for_lock(Thread& thread) {
  const Memory& memory = thread.process->memory;
  const Address at = thread.call.args[0];
  uint32_t word = 0;
  if (!thread.call.row->may_block || !memory.get(at, word)) return false;
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

void LockCalls::let_sleep(const Thread& thread) {
  while (!sleeps(thread.tid) && !tracer_.has_stopped(thread.tid)) sched_yield();
}

}  // namespace redrive
