// Which signals of one thread have had their turn: a handler has run for them at the place where the thread's code
// stands. Such a signal has to wait until that code has made progress, which is when it makes an event of its own, or
// has come to a call from elsewhere.
//
// The handler of a timer's signal takes longer under the recorder. If it takes longer than the timer's period, the
// signal is pending again whenever the handler returns, and would keep the interrupted code from ever running. Other
// signals, and real-time signals that were queued, come as they would without the recorder.
//
// A handler is code of its own: what it does is not progress of the code that it has interrupted. One that is left by
// siglongjmp(3) never returns; what runs then counts as part of it, and so does all that follows. Handlers may return
// in any order: those of user-level threads that a signal switches do (swapcontext(3)).
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/remote.h"

namespace redrive {

// The kernel's real-time signals. The C library keeps the first two for itself; its SIGRTMIN comes after them.
inline constexpr int kFirstRealTime = 32, kLastRealTime = 64;
// Whether the kernel keeps every one of these, in the order in which they came (signal(7)).
constexpr bool is_queued(const siginfo_t& info) { return info.si_signo >= kFirstRealTime && info.si_code != SI_TIMER; }

class SignalTurns {
 public:
  // Whether a signal that comes now has to wait. Only if the signal is caught, and no instruction has caused it.
  bool must_wait(const siginfo_t& info) const;
  // Whether the signal has had a turn since the thread's code last made progress.
  bool has_had(int signal) const;
  // The signal has a turn, without a handler.
  void has_now(int signal);

  // The thread's code makes an event.
  void got_on() { had_ = {}; }
  // The thread's code is about to make a call.
  void comes_to_call();
  // A handler for the signal starts, where the thread's code stands; its stack begins at `frame`. `before_call`: the
  // code is about to make a call, to which the handler returns.
  void handler_starts(int signal, Address frame, bool before_call);
  // The thread calls rt_sigreturn(2) with this stack pointer.
  void handler_returns(Address stack_pointer);

 private:
  // As in SignalMasks: those that have had their turn since some code last made progress.
  struct Had {
    uint64_t signals = 0;
    uint64_t elsewhere = 0;  // those of them whose handlers have not begun before a call
  };
  // One that has not returned, as far as is known.
  struct Handler {
    Address frame = 0;
    Had had;  // of the code that it has interrupted
  };
  std::vector<Handler> handlers_;  // in the order in which they have started
  Had had_;                        // of the running code
};

}  // namespace redrive
