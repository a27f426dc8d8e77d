#include "supervisor/record/woken_calls.h"

#include <sys/syscall.h>

#include <algorithm>

#include "supervisor/record/stop_queue.h"
#include "supervisor/record/thread_control.h"
#include "supervisor/tier/registers.h"

namespace redrive {

int64_t WokenCalls::result(Thread& thread, int64_t result) {
  const bool woken = std::exchange(thread.woken, false);
  // After a handler the kernel has nothing to restart, and says so with EINTR, whether the thread was woken or not.
  if (result != -EINTR || thread.entry.orig_rax == SYS_restart_syscall) return result;
  const SignalMasks masks = tracer_.signal_masks(thread.tid);
  if (!woken && !(masks.pending & ~masks.blocked) && !was_taken_by_another(thread)) return result;
  thread.timeout.enters_again({thread.row, thread.args, thread.process->memory});
  return kErestartNoHandler;
}

// One that is ignored, which the program must not notice. It may still be to be handled; if that one is caught, it
// could as well have come to the other thread at once.
bool WokenCalls::was_taken_by_another(const Thread& thread) {
  if (thread.process->ignored_signals != thread.ignored_signals) return true;
  const auto& threads = thread.process->unit->threads;
  return std::any_of(threads.begin(), threads.end(), [&](const auto& entry) {
    const Thread& other = *entry.second;
    const bool beside = &other != &thread && other.process == thread.process && !other.exited;
    return beside && (stops_.holds(other.tid) || tracer_.has_stopped(other.tid));
  });
}

void WokenCalls::enter(Thread& thread) {
  thread.ignored_signals = thread.process->ignored_signals;
  const auto left = thread.timeout.enter({thread.row, thread.args, thread.process->memory}, tracer_.now());
  if (!left) return;
  user_regs_struct regs = thread.entry;
  syscall_arg(regs, thread.row->timeout_arg) = *left;
  control_.set_regs(thread, regs);
}

void WokenCalls::leave(Thread& thread, Event& event) {
  const auto own = thread.timeout.take_own();
  if (!own) return;
  thread.process->memory.put(own->at, own->timeout);
  const auto* const first = reinterpret_cast<const uint8_t*>(&own->timeout);
  event.writes.push_back(
      {own->at, sizeof own->timeout, MemoryWrite::Kind::data, Bytes(first, first + sizeof own->timeout)});
}

}  // namespace redrive
