// Calls that are entered again sleep for the rest of their timeout. The program's memory is that of this process.
#include "supervisor/record/tracees/call_timeout.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/fake_tracer.h"
#include "tests/unit/unit_test.h"

namespace redrive::call_timeout_test {
using namespace std::chrono_literals;

namespace {

struct Caller {
  Caller() {
    auto opened = Memory::open(getpid());
    REQUIRE(opened);
    memory = std::move(*opened);
  }
  CallTimeout::Call call() const { return {find_row(number, args), args, memory}; }
  std::optional<uint64_t> enter() { return timeout.enter(call(), tracer.now()); }
  void is_woken() { timeout.enters_again(call()); }
  void poll(int32_t ms) { number = SYS_poll, args = {0, 0, static_cast<uint32_t>(ms)}; }
  void semtimedop(const timespec* time) { number = SYS_semtimedop, args = {0, 0, 0, reinterpret_cast<uint64_t>(time)}; }

  Memory memory;
  int64_t number = 0;
  std::array<uint64_t, 6> args{};
  FakeTracer tracer;  // used for its clock
  CallTimeout timeout;
};

int64_t ns_of(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

}  // namespace

TEST_CASE("a call that is entered for the first time has its own timeout") {
  Caller caller;
  caller.poll(1000);
  CHECK_FALSE(caller.enter());
  CHECK_FALSE(caller.timeout.take_shortened());
  caller.tracer.pass(300ms);
  CHECK_FALSE(caller.enter());  // it has returned meanwhile, and is made again
  timespec second{1, 0};
  caller.semtimedop(&second);
  CHECK_FALSE(caller.enter());
  CHECK_FALSE(caller.timeout.own());
}

TEST_CASE("what is left of a timeout in a register, each time that the call is woken") {
  Caller caller;
  caller.poll(1000);
  caller.enter();
  caller.tracer.pass(300ms);
  caller.is_woken();
  caller.tracer.pass(1ms);
  CHECK_EQ(caller.enter(), 699);
  CHECK(caller.timeout.take_shortened());
  CHECK_FALSE(caller.timeout.take_shortened());
  caller.tracer.pass(400ms + 1us);
  caller.is_woken();
  CHECK_EQ(caller.enter(), 299);  // not before its time
  caller.tracer.pass(10s);
  caller.is_woken();
  CHECK_EQ(caller.enter(), 0);
}

TEST_CASE("what is left of a timeout in memory, where the program finds its own at the exit") {
  Caller caller;
  timespec timeout{2, 500'000'000};
  caller.semtimedop(&timeout);
  caller.enter();
  caller.tracer.pass(700ms);
  caller.is_woken();
  CHECK_FALSE(caller.enter());
  CHECK_FALSE(caller.timeout.take_shortened());
  CHECK_EQ(ns_of(timeout), 1'800'000'000);
  REQUIRE(caller.timeout.own());
  const auto own = caller.timeout.take_own();
  CHECK_EQ(own->at, reinterpret_cast<Address>(&timeout));
  CHECK_EQ(ns_of(own->timeout), 2'500'000'000);
  CHECK_FALSE(caller.timeout.take_own());
}

TEST_CASE("a call that sleeps for ever, or cannot tell for how long, does so again") {
  Caller caller;
  caller.poll(-1);
  caller.enter();
  caller.is_woken();
  caller.tracer.pass(1s);
  CHECK_FALSE(caller.enter());
  caller.semtimedop(nullptr);
  caller.enter();
  caller.is_woken();
  CHECK_FALSE(caller.enter());
  CHECK_FALSE(caller.timeout.own());
  caller.semtimedop(reinterpret_cast<const timespec*>(8));  // nothing is mapped there
  caller.enter();
  caller.is_woken();
  CHECK_FALSE(caller.enter());
  CHECK_FALSE(caller.timeout.own());
  // For this one, the kernel writes the rest of the timeout.
  const timespec second{1, 0};
  caller.number = SYS_ppoll, caller.args = {0, 0, reinterpret_cast<uint64_t>(&second), 0, 8};
  caller.enter();
  caller.is_woken();
  CHECK_FALSE(caller.enter());
  CHECK_FALSE(caller.timeout.own());
  caller.number = SYS_pause;
  caller.enter();
  caller.is_woken();
  CHECK_FALSE(caller.enter());
}

TEST_CASE("after a handler the next call is another one") {
  Caller caller;
  caller.poll(1000);
  caller.enter();
  caller.tracer.pass(300ms);
  caller.is_woken();
  caller.timeout.forget();
  CHECK_FALSE(caller.enter());
  caller.tracer.pass(100ms);
  caller.is_woken();
  CHECK_EQ(caller.enter(), 900);
}

TEST_CASE("a call that was entered before it was seen") {
  Caller caller;
  caller.poll(1000);
  const auto then = caller.tracer.now();
  caller.tracer.pass(200ms);
  caller.timeout.entered_at(then);
  caller.is_woken();
  CHECK_EQ(caller.enter(), 800);
}

}  // namespace redrive::call_timeout_test
