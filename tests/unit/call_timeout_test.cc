// Calls that are entered again sleep for the rest of their timeout. The program's memory is that of this process.
#include "supervisor/record/tracees/call_timeout.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "supervisor/record/tracees/socket_timeout.h"
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
  bool is_over() const { return timeout.is_over(tracer.now()); }
  void poll(int32_t ms) { number = SYS_poll, args = {0, 0, static_cast<uint32_t>(ms)}; }
  void semtimedop(const timespec* time) { number = SYS_semtimedop, args = {0, 0, 0, reinterpret_cast<uint64_t>(time)}; }

  Memory memory;
  int64_t number = 0;
  std::array<uint64_t, 6> args{};
  FakeTracer tracer;  // used for its clock
  CallTimeout timeout;
};

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

TEST_CASE("a timeout in memory stays what it is, and the call is over in time") {
  Caller caller;
  const timespec timeout{2, 500'000'000};
  caller.semtimedop(&timeout);
  caller.enter();
  CHECK_FALSE(caller.is_over());
  caller.tracer.pass(700ms);
  caller.is_woken();
  CHECK_FALSE(caller.enter());
  CHECK_FALSE(caller.timeout.take_shortened());
  CHECK_EQ(timeout.tv_sec, 2);
  CHECK_EQ(timeout.tv_nsec, 500'000'000);
  caller.tracer.pass(1799ms);
  CHECK_FALSE(caller.is_over());
  caller.tracer.pass(1ms);
  CHECK(caller.is_over());
}

TEST_CASE("a timeval is in microseconds") {
  Caller caller;
  const timeval timeout{1, 500'000};
  caller.number = SYS_select, caller.args = {0, 0, 0, 0, reinterpret_cast<uint64_t>(&timeout)};
  caller.enter();
  caller.is_woken();
  caller.tracer.pass(1499ms);
  CHECK_FALSE(caller.is_over());
  caller.tracer.pass(1ms);
  CHECK(caller.is_over());
}

TEST_CASE("a call that sleeps for ever does so again") {
  Caller caller;
  const auto sleeps_on = [&] {
    caller.enter();
    caller.is_woken();
    caller.tracer.pass(1h);
    CHECK_FALSE(caller.enter());
    CHECK_FALSE(caller.is_over());
  };
  caller.poll(-1);
  sleeps_on();
  caller.semtimedop(nullptr);
  sleeps_on();
  caller.semtimedop(reinterpret_cast<const timespec*>(8));  // nothing is mapped there
  sleeps_on();
  caller.number = SYS_pause;
  sleeps_on();
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

TEST_CASE("a socket's timeout lasts from the entry of the call, however often the call is woken") {
  Caller caller;
  caller.number = SYS_recvfrom;
  const auto is_woken = [&] { caller.timeout.enters_again(caller.call(), 2s); };
  caller.enter();
  CHECK_FALSE(caller.is_over());
  for (int i = 0; i < 3; ++i) {
    caller.tracer.pass(600ms);
    is_woken();
    caller.timeout.left();
    CHECK_FALSE(caller.enter());
    CHECK_FALSE(caller.is_over());
  }
  CHECK(caller.timeout.is_over(caller.tracer.now() + 200ms));
  caller.tracer.pass(200ms);
  CHECK(caller.is_over());
  SUBCASE("it ends") {
    caller.timeout.left();
    CHECK_FALSE(caller.is_over());
  }
  SUBCASE("the thread makes another call") {
    caller.enter();
    CHECK_FALSE(caller.is_over());
  }
  SUBCASE("a transfer that gets on may sleep as long again") {
    caller.timeout.goes_on(caller.tracer.now(), 2s);
    CHECK_FALSE(caller.is_over());
    caller.tracer.pass(2s);
    CHECK(caller.is_over());
  }
}

TEST_CASE("which calls a socket's timeout concerns, and with which error they end") {
  int ends[2];
  REQUIRE_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Fd local(ends[0]), peer(ends[1]), internet(socket(AF_INET, SOCK_STREAM, 0));
  const Fd self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const timeval receive{2, 500'000}, send{3, 0}, forever{1'000'000'000'000, 0};
  for (const int each : {local.get(), internet.get()}) {
    REQUIRE_EQ(setsockopt(each, SOL_SOCKET, SO_RCVTIMEO, &receive, sizeof receive), 0);
    REQUIRE_EQ(setsockopt(each, SOL_SOCKET, SO_SNDTIMEO, &send, sizeof send), 0);
  }
  REQUIRE_EQ(setsockopt(peer.get(), SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof forever), 0);
  const auto timeout = [&](int64_t number, const Fd& socket) {
    const std::array<uint64_t, 6> args{static_cast<uint64_t>(socket.get())};
    return socket_timeout(*find_row(number, args), args, self.get());
  };
  for (const int64_t number : {SYS_read, SYS_recvfrom, SYS_recvmsg, SYS_accept4}) {
    CAPTURE(number);
    const auto found = timeout(number, local);
    REQUIRE(found);
    CHECK_EQ(found->length.count(), 2'500'000'000);
    CHECK_EQ(found->error, EAGAIN);
  }
  for (const int64_t number : {SYS_write, SYS_sendto, SYS_sendfile, SYS_connect}) {
    CAPTURE(number);
    const auto found = timeout(number, local);
    REQUIRE(found);
    CHECK_EQ(found->length.count(), 3'000'000'000);
    CHECK_EQ(found->error, EAGAIN);
  }
  CHECK_EQ(timeout(SYS_connect, internet)->error, EINPROGRESS);
  CHECK_FALSE(timeout(SYS_recvfrom, peer));
  CHECK_FALSE(timeout(SYS_sendto, peer));
  CHECK_FALSE(timeout(SYS_read, self));
  CHECK_FALSE(timeout(SYS_fsync, local));
  CHECK_FALSE(timeout(SYS_msgsnd, local));
}

}  // namespace redrive::call_timeout_test
