#include "supervisor/record/stops/woken_calls.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>

#include "base/procfs.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/kernel/stop_queue.h"
#include "supervisor/record/kernel/tracee_calls.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/transfer_rest.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

std::optional<std::chrono::nanoseconds> length_of(const std::optional<SocketTimeout>& timeout) {
  return timeout ? std::optional(timeout->length) : std::nullopt;
}

// When the time of a select(2) is over, the kernel empties its sets. Other calls write nothing then.
void empty_sets(const Thread& thread) {
  const CurrentCall& call = thread.call;
  for (size_t i = 0; i < call.args.size(); ++i) {
    const Arg& arg = call.row->args[i];
    if (arg.kind != ArgKind::in_out || arg.written != Written::success) continue;
    const Bytes none(call.sizes.size[i]);
    thread.process->memory.write(call.args[i], none.data(), none.size());
  }
}

}  // namespace

int64_t WokenCalls::result(Thread& thread, int64_t result) {
  const bool woken = std::exchange(thread.woken, false), disturbed = std::exchange(thread.disturbed, false);
  // After a handler the kernel has nothing to restart, and fails the call with EINTR, whether it was woken or not.
  if (result != -EINTR || thread.entry.orig_rax == SYS_restart_syscall) return result;
  if (!woken && !woken_by_signals(thread, disturbed)) return result;
  const auto of_socket = timeout_of_socket(thread);
  CallTimeout& timeout = thread.call.timeout;
  timeout.enters_again({thread.call.row, thread.call.args, thread.process->memory}, length_of(of_socket));
  if (!timeout.is_over(tracer_.now())) return kErestartNoHandler;
  timeout.forget();
  if (!of_socket) empty_sets(thread);
  return -(of_socket ? of_socket->error : thread.call.row->timed_out);
}

std::optional<SocketTimeout> WokenCalls::timeout_of_socket(Thread& thread) {
  return socket_timeout(*thread.call.row, thread.call.args, pidfd_of_table(thread));
}

void WokenCalls::note_progress(Thread& thread) {
  thread.call.timeout.goes_on(tracer_.now(), length_of(timeout_of_socket(thread)));
}

void WokenCalls::end_late(Unit& unit) {
  const auto now = tracer_.now();
  for (const auto& [serial, thread] : unit.threads) {
    const bool in_call = thread->is<Thread::Syscall>() || thread->is<Thread::Blocked>();
    if (in_call && thread->call.timeout.is_over(now)) thread->woken = tracer_.interrupt(thread->tid);
  }
}

bool WokenCalls::transfer_rest(Thread& thread, uint64_t moved) {
  const Process& process = *thread.process;
  const auto number = static_cast<int64_t>(thread.entry.orig_rax);
  auto rest = rest_of_transfer(number, thread.call.args, process.memory, moved);
  // A program's own filters may allow only what it uses.
  if (!rest || control_.parks() || (limits_.attached && rest->number != number)) return false;
  if (thread.call.changes_object) return false;  // others may see its changes only together
  struct stat file {};
  stat(descriptor_path(thread.tid, thread.call.args[0]).c_str(), &file);
  if (!ends_when_woken(number, file)) {
    const uint64_t least = least_received(number, thread.call.args, pidfd_of_table(thread));
    if (moved >= least) return false;
    uint64_t& size = rest->args[2];  // of read(2) and recvfrom(2), which transfer the rest of any receive
    size = std::min(size, least - moved);
  }
  const Address instruction = vdso_syscall(process.memory, vdso_address(process.shown_as()));
  if (!instruction && process.tier()) return false;
  user_regs_struct regs = thread.entry;
  regs.rip = instruction ? instruction : before_syscall(thread.entry).rip;
  regs.rax = static_cast<uint64_t>(rest->number);
  regs.orig_rax = ~0ull;
  for (int i = 0; i < 6; ++i) syscall_arg(regs, i) = rest->args[static_cast<size_t>(i)];
  if (!tracer_.set_regs(thread.tid, regs)) return false;
  thread.call.rest = CurrentCall::Rest{moved};
  thread.woken = thread.disturbed = false;
  control_.resume(thread, Resume::to_syscall_exit);
  return true;
}

bool WokenCalls::is_cut_short(int64_t number, const std::array<uint64_t, 6>& args, const Memory& memory,
                              int64_t result) {
  return result > 0 && rest_of_transfer(number, args, memory, static_cast<uint64_t>(result));
}

bool WokenCalls::goes_on(Thread& thread, int64_t result) {
  if (thread.in_hand) return false;
  Bytes xstate = tracer_.get_xstate(thread.tid);
  if (!transfer_rest(thread, static_cast<uint64_t>(result))) return false;
  note_progress(thread);
  thread.xstate = std::move(xstate);
  thread.state = Thread::Blocked{};
  return true;
}

bool WokenCalls::goes_on_if_woken(Thread& thread, int64_t result) {
  if (std::exchange(thread.call.rest, {})) return false;  // it has gone on
  const auto number = static_cast<int64_t>(thread.entry.orig_rax);
  return is_cut_short(number, thread.call.args, thread.process->memory, result) &&
         (thread.woken || woken_by_signals(thread, thread.disturbed)) && goes_on(thread, result);
}

void WokenCalls::enter_rest(Thread& thread) {
  thread.call.rest->entered = true;
  user_regs_struct regs;
  // A signal that came on the way would have ended the call.
  if (!thread.signals.empty() && tracer_.get_regs(thread.tid, regs)) {
    regs.orig_rax = ~0ull;
    regs.rax = 0;
    tracer_.set_regs(thread.tid, regs);
  }
  control_.resume(thread, Resume::to_syscall_exit);
}

// What the whole call has transferred after the call `by`, which transfers a part of the rest, had this result. How
// much sendmmsg(2) has sent of a message is in the message's header.
uint64_t WokenCalls::moved_by_rest(const Thread& thread, int64_t by, int64_t result) {
  const uint64_t moved = thread.call.rest->moved;
  if (result <= 0) return moved;
  if (thread.entry.orig_rax != SYS_sendmmsg || by == SYS_sendmmsg) return moved + static_cast<uint64_t>(result);
  const Address length = thread.call.args[1] + (moved - 1) * sizeof(mmsghdr) + offsetof(mmsghdr, msg_len);
  uint32_t sent = 0;
  thread.process->memory.get(length, sent);
  thread.process->memory.put(length, sent + static_cast<uint32_t>(result));
  return moved;
}

bool WokenCalls::leaves_rest(Thread& thread) {
  CurrentCall::Rest& rest = *thread.call.rest;
  if (!rest.entered) {  // on the way to the call, the thread has stopped at the instruction that makes it
    control_.resume(thread, Resume::to_syscall_exit);
    return false;
  }
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return false;
  const auto result = static_cast<int64_t>(regs.rax);
  const uint64_t moved = moved_by_rest(thread, static_cast<int64_t>(regs.orig_rax), result);
  const bool ended = result <= 0 && result != -EINTR && !restarts(result);
  // Of several parts, each in its turn. sendmmsg(2) makes several messages by itself.
  const bool whole = result > 0 && static_cast<uint64_t>(result) == regs.rdx && regs.orig_rax != SYS_sendmmsg;
  // recvmmsg(2) leaves what has ended it to the next call on the socket, which fails at once.
  const bool left_over = regs.orig_rax == SYS_recvmmsg && result < 0;
  if (result > 0) note_progress(thread);
  const bool over = thread.call.timeout.is_over(tracer_.now());
  const bool goes_on = !ended && !over && thread.signals.empty() &&
                       (whole || left_over || thread.woken || woken_by_signals(thread, thread.disturbed));
  if (goes_on && transfer_rest(thread, moved)) return false;
  rest.done = true;
  regs = thread.entry;
  regs.rax = moved;
  regs.orig_rax = ~0ull;
  control_.set_regs(thread, regs);
  return true;
}

bool WokenCalls::woken_by_signals(const Thread& thread, bool disturbed) {
  const Process& process = *thread.process;
  const SignalMasks masks = tracer_.signal_masks(thread.tid);
  const uint64_t pending = masks.deliverable();
  bool ignored = disturbed || pending != 0 || process.taken.ignored != thread.call.taken_before.ignored;
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

}  // namespace redrive
