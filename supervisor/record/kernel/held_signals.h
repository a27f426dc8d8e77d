// Asynchronous signals of one thread that came between its events, and are delivered at its next one: a handler may
// start only where a replay can find the place (stops/DESIGN.md, Signals).
//
// A signal is held when the thread has stopped for it, and the kernel forgets it then. At an event it is raised: sent
// to the thread again, and remembered until the thread stops for it once more, because the kernel then names redrive as
// its sender. A raised signal that the thread blocks stays with the kernel.
//
// On its way to the event the thread does not stop for more of the same. A timer could send one during each of these
// stops, and the thread would never get there. So while it runs, the kernel keeps them (keep_off()); the thread's own
// signal mask is back before anything can see it (let_come()). Real-time signals that were queued still come: their
// order counts, and one that is raised comes after all that the kernel keeps.
//
// It decides nothing about what a signal does, and logs nothing. `pid` and `tid` are always the thread's own.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <deque>
#include <optional>
#include <vector>

#include "base/signals.h"
#include "supervisor/record/kernel/signal_turns.h"
#include "supervisor/record/kernel/tracer.h"

namespace redrive {

// Signals that instructions cause. The kernel takes the handler away from a thread that blocks one (force_sig(),
// kernel/signal.c).
constexpr uint64_t kCausedByInstructions =
    bit_of(SIGSEGV) | bit_of(SIGBUS) | bit_of(SIGILL) | bit_of(SIGFPE) | bit_of(SIGTRAP) | bit_of(SIGSYS);

// Lets a stopped thread make calls for the recorder undisturbed. Returns the thread's own mask, to be restored
// afterwards.
uint64_t block_signals(Tracer& tracer, pid_t tid);

class HeldSignals {
 public:
  bool empty() const { return held_.empty(); }
  // Whether the next one is a stop.
  bool begins_with_stop() const { return !empty() && stops_the_group(held_.front().si_signo); }
  // Since when the first of those that are held now has been waiting; only if there is one.
  Clock::time_point since() const { return since_; }

  // Whether this signal, which has just come from the kernel, was sent after one that is still to be delivered and must
  // not overtake it: queued signals of one number keep their order.
  bool overtakes(const siginfo_t& info) const;

  // Does nothing if the same signal is held already and the kernel would keep only one.
  void hold(const siginfo_t& info, Clock::time_point now);

  // The thread, which is stopped, is at an event: raises held signals up to the first that is delivered when the thread
  // runs on, except those that have to wait for their turn. True if there is one. Signals of which the kernel keeps one
  // only, and stops that SIGCONT has overtaken, are dropped.
  bool raise(Tracer& tracer, pid_t pid, pid_t tid, const SignalTurns& turns);
  // Raises this one now. False if it cannot be sent: the thread has been killed.
  bool raise(Tracer& tracer, pid_t pid, pid_t tid, const siginfo_t& info);
  // The thread has stopped for a signal that redrive has sent it. Returns the signal as it was raised, and forgets it;
  // nullopt if it is not one that was raised.
  std::optional<siginfo_t> arrived(int signal);

  // The thread, which is stopped in user code, is about to run on to its next event: signals that are held for it stay
  // with the kernel from now on, and so does `ignored`, which came although nothing is to be done about it (0: none).
  void keep_off(Tracer& tracer, pid_t tid, int ignored = 0);
  // The same, but the thread will be stopped by a trap: SIGTRAP is not blocked, or the kernel would force it.
  void keep_off_up_to_trap(Tracer& tracer, pid_t tid);
  // The thread has come to its event, which is a call that creates a thread or a process. Such a call does nothing
  // while a signal is pending (copy_process(), kernel/fork.c), so what was kept off on the way stays with the kernel
  // during the call as well. Returns the thread's own mask if it differs from the current one: what is created inherits
  // the current one, and must be given the other.
  std::optional<uint64_t> keep_off_birth(Tracer& tracer, pid_t tid);
  // The thread has stopped: it has its own signal mask again.
  void let_come(Tracer& tracer, pid_t tid);

  // SIGCONT has come: held stops are dropped.
  void forget_stops();
  // The thread ends before they came: those that were sent to its process, and not to the thread alone, are another
  // thread's now. None is held any more.
  std::vector<siginfo_t> take_for_process();
  // A new program begins. It gets none of them.
  void forget_all();

 private:
  struct Raised {
    siginfo_t info;
    int carrier;  // the signal that was sent for it
  };
  std::deque<siginfo_t> held_;
  std::deque<Raised> raised_;
  Clock::time_point since_{};
  uint64_t kept_ = 0;             // those that were kept off since the thread last ran on, as in SignalMasks
  std::optional<uint64_t> mask_;  // the thread's own, while it has another one

  // What is to be kept off when the thread runs on.
  uint64_t to_keep(int ignored);
  void block(Tracer& tracer, pid_t tid, uint64_t signals, uint64_t unblocked = 0);
  bool send(Tracer& tracer, pid_t pid, pid_t tid, const siginfo_t& info, uint64_t blocked);
  // What was raised while the thread blocked it may have been taken without a stop (sigtimedwait(2), signalfd(2)).
  void forget_taken(Tracer& tracer, pid_t tid);
};

}  // namespace redrive
