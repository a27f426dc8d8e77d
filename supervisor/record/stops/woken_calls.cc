#include "supervisor/record/stops/woken_calls.h"

#include <sys/syscall.h>

#include <bit>

#include "supervisor/record/kernel/stop_queue.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/registers.h"

namespace redrive {

int64_t WokenCalls::result(Thread& thread, int64_t result) {
  const bool woken = std::exchange(thread.woken, false);
  // After a handler the kernel has nothing to restart, and fails the call with EINTR, whether it was woken or not.
  if (result != -EINTR || thread.entry.orig_rax == SYS_restart_syscall) return result;
  if (!woken && !woken_by_signals(thread)) return result;
  thread.call.timeout.enters_again({thread.call.row, thread.call.args, thread.process->memory});
  return kErestartNoHandler;
}

bool WokenCalls::woken_by_signals(const Thread& thread) {
  const Process& process = *thread.process;
  const SignalMasks masks = tracer_.signal_masks(thread.tid);
  const uint64_t pending = masks.pending & ~masks.blocked;
  bool ignored = pending != 0 || process.taken.ignored != thread.call.taken_before.ignored;
  bool others_taken = process.taken.others != thread.call.taken_before.others;
  for (uint64_t left = pending; left != 0; left &= left - 1) {
    if (!is_ignored(masks, std::countr_zero(left) + 1)) return false;  // a thread will handle it
  }
  for (const auto& [serial, other] : process.unit->threads) {
    if (other == &thread || other->process != &process || other->exited) continue;
    if (tracer_.has_stopped(other->tid)) stops_.await(other->tid);
    const int signal = stops_.signal_of(other->tid);
    if (signal != 0) (is_ignored(masks, signal) ? ignored : others_taken) = true;
  }
  return ignored && !others_taken;
}

void WokenCalls::enter(Thread& thread) {
  thread.call.taken_before = thread.process->taken;
  const auto left =
      thread.call.timeout.enter({thread.call.row, thread.call.args, thread.process->memory}, tracer_.now());
  if (!left) return;
  user_regs_struct regs = thread.entry;
  syscall_arg(regs, thread.call.row->timeout_arg) = *left;
  control_.set_regs(thread, regs);
}

void WokenCalls::leave(Thread& thread, Event& event) {
  const auto own = thread.call.timeout.take_own();
  if (!own) return;
  thread.process->memory.put(own->at, own->timeout);
  const auto* const first = reinterpret_cast<const uint8_t*>(&own->timeout);
  event.writes.push_back(
      {own->at, sizeof own->timeout, MemoryWrite::Kind::data, Bytes(first, first + sizeof own->timeout)});
}

}  // namespace redrive
