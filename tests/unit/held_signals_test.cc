// Signals that wait for an event of their thread: which are sent again, when, and how they are then recognized.
#include "supervisor/record/kernel/held_signals.h"

#include <string>
#include <vector>

#include "tests/unit/fake_tracer.h"
#include "tests/unit/unit_test.h"

namespace redrive::held_signals_test {

namespace {

constexpr pid_t kPid = 10, kTid = 12;
using Lines = std::vector<std::string>;

siginfo_t signal_of(int number, int code = SI_USER, pid_t sender = 77) {
  siginfo_t info{};
  info.si_signo = number;
  info.si_code = code;
  info.si_pid = sender;
  return info;
}

// A stopped thread of a process.
struct Held {
  Held() {
    thread = &tracer.add(kTid, {SyscallEntry{}});
    tracer.wait(kTid);
  }
  void hold(int number) { signals.hold(signal_of(number), tracer.now()); }
  bool raise() { return signals.raise(tracer, kPid, kTid, turns); }
  // What was sent since the previous call.
  Lines sent() { return std::exchange(tracer.asked, {}); }
  static std::string sends(int number) { return "10/12: send " + std::to_string(number); }

  FakeTracer tracer;
  FakeTracer::Tracee* thread = nullptr;
  HeldSignals signals;
  SignalTurns turns;
};

}  // namespace

TEST_CASE("held signals are raised one at a time, in the order in which they came") {
  Held held;
  CHECK(held.signals.empty());
  CHECK_FALSE(held.raise());
  held.hold(SIGUSR1);
  held.hold(SIGTERM);
  CHECK_FALSE(held.signals.empty());
  CHECK(held.raise());
  CHECK(held.sent() == Lines{Held::sends(SIGUSR1)});
  CHECK(held.raise());
  CHECK(held.sent() == Lines{Held::sends(SIGTERM)});
  CHECK(held.signals.empty());
  CHECK_FALSE(held.raise());
}

TEST_CASE("a raised signal is known again by its sender, once") {
  Held held;
  held.hold(SIGUSR1);
  CHECK_FALSE(held.signals.arrived(SIGUSR1));  // it was not sent yet
  held.raise();
  CHECK_FALSE(held.signals.arrived(SIGUSR2));
  const auto arrived = held.signals.arrived(SIGUSR1);
  REQUIRE(arrived);
  CHECK_EQ(arrived->si_signo, SIGUSR1);
  CHECK_EQ(arrived->si_pid, 77);
  CHECK_FALSE(held.signals.arrived(SIGUSR1));
}

TEST_CASE("the time of a wait is that of the first signal") {
  using namespace std::chrono_literals;
  Held held;
  held.tracer.pass(1s);
  const auto first = held.tracer.now();
  held.hold(SIGUSR1);
  held.tracer.pass(1s);
  held.hold(SIGUSR2);
  CHECK((held.signals.since() == first));
  held.raise();
  held.raise();
  held.tracer.pass(1s);
  held.hold(SIGUSR1);
  CHECK((held.signals.since() == first + 2s));
}

TEST_CASE("blocked signals stay with the kernel, and those after them are raised as well") {
  Held held;
  held.thread->signal_mask = bit_of(SIGUSR1);
  held.hold(SIGUSR1);
  held.hold(SIGUSR2);
  held.hold(SIGTERM);
  CHECK(held.raise());
  CHECK(held.sent() == Lines{Held::sends(SIGUSR1), Held::sends(SIGUSR2)});
  CHECK(held.signals.arrived(SIGUSR2));
  CHECK(held.signals.arrived(SIGUSR1));  // when it is no longer blocked
  held.thread->signal_mask = bit_of(SIGTERM);
  CHECK_FALSE(held.raise());
  CHECK(held.sent() == Lines{Held::sends(SIGTERM)});
}

TEST_CASE("the kernel keeps one of each standard signal, and all real-time signals") {
  Held held;
  held.thread->signal_mask = ~uint64_t{0};
  for (int i = 0; i < 3; ++i) held.hold(SIGUSR1), held.hold(SIGRTMIN);
  CHECK_FALSE(held.raise());
  CHECK(held.sent() ==
        Lines{Held::sends(SIGUSR1), Held::sends(SIGRTMIN), Held::sends(SIGRTMIN), Held::sends(SIGRTMIN)});
  held.signals.arrived(SIGUSR1);
  held.hold(SIGUSR1);
  held.raise();
  CHECK(held.sent() == Lines{Held::sends(SIGUSR1)});
}

TEST_CASE("SIGCONT is sent as another signal, so that it takes back no stop") {
  constexpr int kCarrier = 64;
  Held held;
  held.hold(SIGCONT);
  CHECK(held.raise());
  CHECK(held.sent() == Lines{Held::sends(kCarrier)});
  CHECK_FALSE(held.signals.arrived(SIGCONT));
  const auto arrived = held.signals.arrived(kCarrier);
  REQUIRE(arrived);
  CHECK_EQ(arrived->si_signo, SIGCONT);
}

TEST_CASE("SIGCONT is sent as a signal that is not blocked, if there is one") {
  Held held;
  held.thread->signal_mask = bit_of(64) | bit_of(63);
  int sent = 62;
  SUBCASE("") {}
  SUBCASE("the C library blocks all but those that it keeps for itself") {
    held.thread->signal_mask = ~(bit_of(SIGCONT) | bit_of(32) | bit_of(33));
    sent = 33;
  }
  SUBCASE("all are blocked") {
    held.thread->signal_mask = ~bit_of(SIGCONT);
    sent = SIGCONT;
  }
  held.hold(SIGCONT);
  CHECK(held.raise());
  CHECK(held.sent() == Lines{Held::sends(sent)});
  const auto arrived = held.signals.arrived(sent);
  REQUIRE(arrived);
  CHECK_EQ(arrived->si_signo, SIGCONT);
}

TEST_CASE("a stop that SIGCONT has overtaken is dropped") {
  for (const int stop : {SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU}) {
    CAPTURE(stop);
    Held held;
    SUBCASE("while SIGCONT is pending") {
      held.thread->signals.pending = bit_of(SIGCONT);
      held.hold(stop);
      CHECK(held.signals.begins_with_stop());
      held.hold(SIGUSR1);
      CHECK(held.raise());
    }
    SUBCASE("when SIGCONT has come") {
      held.hold(SIGUSR1);
      CHECK_FALSE(held.signals.begins_with_stop());
      held.hold(stop);
      held.signals.forget_stops();
      CHECK(held.raise());
      CHECK_FALSE(held.raise());
    }
    CHECK(held.sent() == Lines{Held::sends(SIGUSR1)});
    CHECK(held.signals.empty());
  }
}

TEST_CASE("a thread that was killed is sent nothing") {
  Held held;
  held.hold(SIGUSR1);
  held.hold(SIGUSR2);
  held.tracer.send(kTid, SIGKILL);
  held.tracer.wait(kTid);
  CHECK_FALSE(held.raise());
  CHECK(held.signals.empty());
  CHECK_FALSE(held.signals.arrived(SIGUSR1));
}

TEST_CASE("what a thread leaves when it ends: signals to its process, not to itself") {
  Held held;
  held.signals.hold(signal_of(SIGUSR1, SI_TKILL), held.tracer.now());
  held.signals.hold(signal_of(SIGTERM), held.tracer.now());
  const auto left = held.signals.take_for_process();
  REQUIRE_EQ(left.size(), 1);
  CHECK_EQ(left.front().si_signo, SIGTERM);
  CHECK(held.signals.empty());
}

TEST_CASE("a new program gets no signal that was held or raised before it") {
  Held held;
  held.hold(SIGUSR1);
  held.raise();
  held.hold(SIGUSR2);
  held.signals.forget_all();
  CHECK(held.signals.empty());
  CHECK_FALSE(held.signals.arrived(SIGUSR1));
}

TEST_CASE("a signal that has had its turn waits until the thread gets on; others do not") {
  Held held;
  held.turns.handler_starts(SIGUSR1, 0x1000, false);
  held.turns.handler_returns(0x1008);
  held.hold(SIGUSR1);
  held.hold(SIGUSR2);
  CHECK(held.raise());
  CHECK(held.sent() == Lines{Held::sends(SIGUSR2)});
  CHECK_FALSE(held.raise());
  CHECK_FALSE(held.signals.empty());
  held.turns.got_on();
  CHECK(held.raise());
  CHECK(held.sent() == Lines{Held::sends(SIGUSR1)});
  CHECK(held.signals.empty());
}

TEST_CASE("one of each standard signal is held, and one of each timer") {
  Held held;
  siginfo_t timer = signal_of(SIGRTMIN, SI_TIMER), other = timer;
  timer.si_timerid = 1, other.si_timerid = 2;
  for (int i = 0; i < 3; ++i) {
    held.hold(SIGALRM);
    held.hold(SIGRTMIN);
    held.signals.hold(timer, held.tracer.now());
    held.signals.hold(other, held.tracer.now());
  }
  size_t raised = 0;
  while (held.raise()) held.signals.arrived(SIGALRM), ++raised;
  CHECK_EQ(raised, 1 + 3 + 2);
}

TEST_CASE("on the way to its event, a thread does not stop for more of what is held") {
  Held held;
  const auto& mask = held.thread->signal_mask;
  held.thread->signal_mask = bit_of(SIGTERM);
  held.signals.keep_off(held.tracer, kTid);
  CHECK_EQ(mask, bit_of(SIGTERM));  // nothing is held
  held.hold(SIGALRM);
  held.hold(SIGTSTP);  // SIGCONT takes it back, wherever it is
  held.signals.keep_off(held.tracer, kTid);
  CHECK_EQ(mask, bit_of(SIGTERM) | bit_of(SIGALRM));
  held.hold(SIGUSR1);
  held.signals.keep_off(held.tracer, kTid, SIGCHLD);
  CHECK_EQ(mask, bit_of(SIGTERM) | bit_of(SIGALRM) | bit_of(SIGUSR1) | bit_of(SIGCHLD));
  held.signals.let_come(held.tracer, kTid);
  CHECK_EQ(mask, bit_of(SIGTERM));
  held.thread->signal_mask = 0;  // the program's own call
  held.signals.let_come(held.tracer, kTid);
  CHECK_EQ(mask, 0);
}

TEST_CASE(
    "queued signals are not kept off, because those that the kernel keeps would overtake the ones that are held") {
  Held held;
  held.hold(SIGRTMIN);
  held.signals.keep_off(held.tracer, kTid);
  CHECK_EQ(held.thread->signal_mask, 0);
  siginfo_t timer = signal_of(SIGRTMIN + 1, SI_TIMER);
  held.signals.hold(timer, held.tracer.now());
  held.signals.keep_off(held.tracer, kTid);
  CHECK_EQ(held.thread->signal_mask, bit_of(SIGRTMIN + 1));
  held.signals.let_come(held.tracer, kTid);
  held.hold(SIGRTMIN + 1);
  held.signals.keep_off(held.tracer, kTid);
  CHECK_EQ(held.thread->signal_mask, 0);
}

TEST_CASE("a raised signal that the thread has taken without a stop is not to come any more") {
  Held held;
  auto& pending = held.thread->signals.pending;
  held.thread->signal_mask = bit_of(SIGRTMIN) | bit_of(SIGUSR1);
  held.signals.hold(signal_of(SIGRTMIN, SI_TIMER, 1), held.tracer.now());
  held.signals.hold(signal_of(SIGUSR1, SI_USER, 1), held.tracer.now());
  CHECK_FALSE(held.raise());
  CHECK_EQ(pending, bit_of(SIGRTMIN) | bit_of(SIGUSR1));
  pending = 0;  // sigtimedwait(2)
  held.thread->signal_mask = 0;
  held.signals.hold(signal_of(SIGRTMIN, SI_QUEUE, 2), held.tracer.now());
  held.signals.hold(signal_of(SIGUSR1, SI_USER, 2), held.tracer.now());
  held.sent();
  CHECK(held.raise());
  CHECK(held.raise());
  CHECK(held.sent() == Lines{Held::sends(SIGRTMIN), Held::sends(SIGUSR1)});
  for (const int signal : {SIGRTMIN, SIGUSR1}) {
    const auto arrived = held.signals.arrived(signal);
    REQUIRE(arrived);
    CHECK_EQ(arrived->si_pid, 2);
  }
}

TEST_CASE("a queued signal overtakes none that was sent before it") {
  Held held;
  const siginfo_t next = signal_of(SIGRTMIN, SI_QUEUE), other = signal_of(SIGRTMIN + 1, SI_QUEUE);
  CHECK_FALSE(held.signals.overtakes(next));
  held.hold(SIGRTMIN);
  CHECK(held.signals.overtakes(next));
  CHECK_FALSE(held.signals.overtakes(other));
  CHECK_FALSE(held.signals.overtakes(signal_of(SIGRTMIN, SI_TIMER)));
  CHECK(held.raise());
  CHECK(held.signals.overtakes(next));  // it is still to come
  CHECK(held.signals.arrived(SIGRTMIN));
  CHECK_FALSE(held.signals.overtakes(next));
  held.hold(SIGALRM);
  CHECK_FALSE(held.signals.overtakes(signal_of(SIGALRM)));
}

TEST_CASE("what was kept off on the way to a call that creates a thread is kept off during the call") {
  Held held;
  const auto& mask = held.thread->signal_mask;
  held.thread->signal_mask = bit_of(SIGTERM);
  CHECK_FALSE(held.signals.keep_off_birth(held.tracer, kTid));  // nothing was
  CHECK_EQ(mask, bit_of(SIGTERM));
  held.hold(SIGALRM);
  held.signals.keep_off(held.tracer, kTid, SIGCHLD);
  held.signals.let_come(held.tracer, kTid);
  CHECK_EQ(held.signals.keep_off_birth(held.tracer, kTid), bit_of(SIGTERM));
  CHECK_EQ(mask, bit_of(SIGTERM) | bit_of(SIGALRM) | bit_of(SIGCHLD));
  held.signals.let_come(held.tracer, kTid);
  CHECK_EQ(mask, bit_of(SIGTERM));
}

TEST_CASE("neither a raised signal is kept off, nor one that an instruction could cause") {
  Held held;
  held.hold(SIGUSR1);
  held.hold(SIGSEGV);
  held.hold(SIGALRM);
  CHECK(held.raise());
  held.hold(SIGUSR1);
  held.signals.keep_off(held.tracer, kTid);
  CHECK_EQ(held.thread->signal_mask, bit_of(SIGALRM));
}

TEST_CASE("the mask of a thread that runs is put back when it has stopped") {
  Held held;
  held.hold(SIGUSR1);
  held.signals.keep_off(held.tracer, kTid);
  held.tracer.resume(kTid, Resume::cont, 0);
  held.signals.let_come(held.tracer, kTid);
  CHECK_EQ(held.thread->signal_mask, bit_of(SIGUSR1));
  held.tracer.interrupt(kTid);
  held.tracer.wait(kTid);
  held.signals.let_come(held.tracer, kTid);
  CHECK_EQ(held.thread->signal_mask, 0);
}

TEST_CASE("a thread that is led to a trap does not block SIGTRAP on its way") {
  Held held;
  const auto& mask = held.thread->signal_mask;
  held.thread->signal_mask = bit_of(SIGTERM);
  held.signals.keep_off_up_to_trap(held.tracer, kTid);
  CHECK_EQ(mask, bit_of(SIGTERM));
  held.thread->signal_mask = bit_of(SIGTERM) | bit_of(SIGTRAP);
  held.signals.keep_off_up_to_trap(held.tracer, kTid);
  CHECK_EQ(mask, bit_of(SIGTERM));
  held.signals.let_come(held.tracer, kTid);
  CHECK_EQ(mask, bit_of(SIGTERM) | bit_of(SIGTRAP));
  held.hold(SIGALRM);
  held.signals.keep_off_up_to_trap(held.tracer, kTid);
  CHECK_EQ(mask, bit_of(SIGTERM) | bit_of(SIGALRM));
  held.signals.let_come(held.tracer, kTid);
  CHECK_EQ(mask, bit_of(SIGTERM) | bit_of(SIGTRAP));
}

TEST_CASE("a thread that makes calls for the recorder has all signals blocked but those that instructions cause") {
  Held held;
  held.thread->signal_mask = bit_of(SIGSEGV);
  CHECK_EQ(block_signals(held.tracer, kTid), bit_of(SIGSEGV));
  CHECK((held.thread->signal_mask & bit_of(SIGALRM)) != 0);
  CHECK((held.thread->signal_mask & bit_of(SIGSEGV)) != 0);
  CHECK((held.thread->signal_mask & bit_of(SIGILL)) == 0);
}

}  // namespace redrive::held_signals_test
