// Which signals of one thread have had their turn: a handler has run for them at the place where the thread's code
// stands. Such a signal has to wait until that code has made progress, which is when it makes an event of its own.
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

// The kernel's first real-time signal. The C library keeps the first two for itself; its SIGRTMIN comes after them.
inline constexpr int kFirstRealTime = 32;
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
  void got_on() { had_ = 0; }
  // A handler for the signal starts, where the thread's code stands; its stack begins at `frame`.
  void handler_starts(int signal, Address frame);
  // The thread calls rt_sigreturn(2) with this stack pointer.
  void handler_returns(Address stack_pointer);

 private:
  // One that has not returned, as far as is known.
  struct Handler {
    Address frame = 0;
    uint64_t had = 0;  // as had_, of the code that it has interrupted
  };
  std::vector<Handler> handlers_;  // in the order in which they have started
  uint64_t had_ = 0;  // as in SignalMasks: those that have had their turn since the running code last made progress
};

}  // namespace redrive
