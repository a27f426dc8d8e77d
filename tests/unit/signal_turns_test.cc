// Which signals have to wait until the code that they interrupt has got on.
#include "supervisor/record/kernel/signal_turns.h"

#include "tests/unit/unit_test.h"

namespace redrive::signal_turns_test {

namespace {

constexpr Address kFrame = 0x7000, kInner = 0x6000;

siginfo_t signal_of(int number, int code = SI_USER) {
  siginfo_t info{};
  info.si_signo = number;
  info.si_code = code;
  return info;
}

bool waits(const SignalTurns& turns, int number, int code = SI_USER) {
  return turns.must_wait(signal_of(number, code));
}

// A handler's own return takes its address from the frame.
void run_handler(SignalTurns& turns, int number, Address frame = kFrame) {
  turns.handler_starts(number, frame, false);
  turns.got_on();  // what a handler does lets only itself get on
  turns.handler_returns(frame + 8);
}

}  // namespace

TEST_CASE("signal turns: a signal comes once until the interrupted code has got on") {
  SignalTurns turns;
  CHECK_FALSE(waits(turns, SIGALRM));
  run_handler(turns, SIGALRM);
  CHECK(waits(turns, SIGALRM));
  CHECK_FALSE(waits(turns, SIGUSR1));
  run_handler(turns, SIGUSR1);
  CHECK(waits(turns, SIGALRM));
  CHECK(waits(turns, SIGUSR1));
  turns.got_on();
  CHECK_FALSE(waits(turns, SIGALRM));
  CHECK_FALSE(waits(turns, SIGUSR1));
}

TEST_CASE("signal turns: code that comes to a call has got on, unless the handler has returned to that call") {
  SignalTurns turns;
  run_handler(turns, SIGALRM);
  turns.comes_to_call();
  CHECK_FALSE(waits(turns, SIGALRM));
  turns.handler_starts(SIGALRM, kFrame, true);
  turns.comes_to_call();  // one of the handler's
  turns.handler_returns(kFrame + 8);
  turns.comes_to_call();
  CHECK(waits(turns, SIGALRM));
  turns.got_on();
  CHECK_FALSE(waits(turns, SIGALRM));
}

TEST_CASE("signal turns: code that comes to a call in a handler has got on, what the handler has interrupted has not") {
  SignalTurns turns;
  turns.handler_starts(SIGALRM, kFrame, false);
  run_handler(turns, SIGUSR1, kInner);
  turns.comes_to_call();
  CHECK_FALSE(waits(turns, SIGUSR1));
  turns.handler_returns(kFrame + 8);
  CHECK(waits(turns, SIGALRM));
}

TEST_CASE("signal turns: real-time signals come as often as they were sent, but not those of timers") {
  SignalTurns turns;
  run_handler(turns, SIGRTMIN);
  CHECK_FALSE(waits(turns, SIGRTMIN));
  CHECK_FALSE(waits(turns, SIGRTMIN, SI_QUEUE));
  CHECK(waits(turns, SIGRTMIN, SI_TIMER));
}

TEST_CASE("signal turns: a handler that is interrupted gets on as other code does") {
  SignalTurns turns;
  turns.handler_starts(SIGALRM, kFrame, false);
  CHECK_FALSE(waits(turns, SIGUSR1));
  run_handler(turns, SIGUSR1, kInner);
  CHECK(waits(turns, SIGUSR1));
  turns.got_on();
  CHECK_FALSE(waits(turns, SIGUSR1));
  turns.handler_returns(kFrame + 8);
  CHECK(waits(turns, SIGALRM));
  CHECK_FALSE(waits(turns, SIGUSR1));  // it has not come here
}

TEST_CASE("signal turns: what returns from a handler returns from those that it has left by a jump") {
  SignalTurns turns;
  turns.handler_starts(SIGALRM, kFrame, false);
  turns.handler_starts(SIGUSR1, kInner, false);
  turns.handler_returns(kFrame + 8);
  CHECK(waits(turns, SIGALRM));
  CHECK_FALSE(waits(turns, SIGUSR1));
}

TEST_CASE("signal turns: handlers return in any order, as those of user-level threads that a signal switches") {
  SignalTurns turns;
  turns.handler_starts(SIGALRM, kFrame, false);  // switches to another thread,
  turns.got_on();
  turns.handler_starts(SIGALRM, kInner, false);  // whose handler switches back
  turns.got_on();
  turns.handler_returns(kFrame + 8);
  CHECK(waits(turns, SIGALRM));
  turns.handler_starts(SIGALRM, kFrame, false);
  CHECK_FALSE(waits(turns, SIGALRM));
  turns.handler_returns(kInner + 8);
  CHECK(waits(turns, SIGALRM));
}

TEST_CASE("signal turns: handlers that never return do not add up, and a return of no handler means nothing") {
  SignalTurns turns;
  for (Address frame = 1; frame < 100'000; ++frame) turns.handler_starts(SIGALRM, frame << 4, false);
  run_handler(turns, SIGUSR1);
  CHECK(waits(turns, SIGUSR1));
  turns.handler_returns(kFrame + 8);
  CHECK(waits(turns, SIGUSR1));
  turns.handler_returns(8);
  CHECK(waits(turns, SIGUSR1));
}

TEST_CASE("signal turns: a signal without a handler has its turn as well") {
  SignalTurns turns;
  CHECK_FALSE(turns.has_had(SIGCHLD));
  turns.has_now(SIGCHLD);
  CHECK(turns.has_had(SIGCHLD));
  turns.got_on();
  CHECK_FALSE(turns.has_had(SIGCHLD));
}

}  // namespace redrive::signal_turns_test
