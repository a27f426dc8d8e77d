// Calls that sleep and are woken by what the program does not see: they are entered again, and end when their timeout
// is over (call_timeout.h). One that has transferred a part of its bytes or messages transfers the rest by other calls,
// at the vDSO's instruction; all are one event (transfer_rest.h).
#pragma once

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/socket_timeout.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class StopQueue;
class ThreadControl;

class WokenCalls {
 public:
  WokenCalls(Tracer& tracer, const RecorderLimits& limits, StopQueue& stops, ThreadControl& control)
      : tracer_(tracer), limits_(limits), stops_(stops), control_(control) {}

  // A tracee is woken by signals that it ignores, too, and by its tracer. The kernel then enters most calls again, but
  // some fail with EINTR (ptrace(2), BUGS; epoll_wait(2), rt_sigtimedwait(2), semop(2), sockets with a timeout). With
  // the result that this returns, the kernel does the same with them: it enters the call again, or turns it into EINTR
  // if a handler runs now. Their timeout continues.
  int64_t result(Thread& thread, int64_t result);
  // Whether a call with this result has transferred only a part of its bytes, of which the rest can be transferred.
  static bool is_cut_short(int64_t number, const std::array<uint64_t, 6>& args, const Memory& memory, int64_t result);
  // The thread's call was cut short, by what the program does not see: the thread transfers the rest, without the
  // baton. False if it does not.
  bool goes_on(Thread& thread, int64_t result);
  // The same at the exit of a call, which may have ended by itself.
  bool goes_on_if_woken(Thread& thread, int64_t result);
  // Interrupts threads whose call was woken and sleeps longer than its timeout.
  void end_late(Unit& unit);
  // At the entry of a call that transfers the rest.
  void enter_rest(Thread& thread);
  // At its exit. True if the thread is now at the exit of the whole call; otherwise it continues.
  bool leaves_rest(Thread& thread);
  // At the entry of a call: if it was woken and is entered again, the kernel is given what is left of a timeout in a
  // register.
  void enter(Thread& thread);

 private:
  // Whether a handler runs now, or the thread was woken by a signal that the process ignores. A signal to the process
  // wakes one thread, and another one may take it: if the process does something about that one, the call fails.
  bool woken_by_signals(const Thread& thread, bool disturbed);
  bool transfer_rest(Thread& thread, uint64_t moved);
  static std::optional<SocketTimeout> timeout_of_socket(Thread& thread);
  void note_progress(Thread& thread);
  static uint64_t moved_by_rest(const Thread& thread, int64_t by, int64_t result);

  Tracer& tracer_;
  const RecorderLimits& limits_;
  StopQueue& stops_;
  ThreadControl& control_;
};

}  // namespace redrive
