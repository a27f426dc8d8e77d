// Every tracee gets its turn, and a stop is handled once.
#include "supervisor/record/kernel/stop_queue.h"

#include <vector>

#include "tests/unit/fake_tracer.h"
#include "tests/unit/unit_test.h"

namespace redrive::stop_queue_test {

namespace {

std::vector<Stopped> take_all(StopQueue& queue) {
  std::vector<Stopped> taken;
  while (const auto next = queue.take()) taken.push_back(*next);
  return taken;
}

// The younger one of two is killed right after its stop was reported by the kernel.
std::vector<Stopped> stops_of_killed(const Stop& stop) {
  struct KillingTracer : FakeTracer {
    Waited take_any() override {
      if (++taken == 2) send(11, SIGKILL);
      return FakeTracer::take_any();
    }
    int taken = 0;
  } tracer;
  tracer.add(10, {SyscallEntry{}});
  tracer.add(11, {stop});
  StopQueue queue(tracer);
  CHECK(queue.fill());
  return take_all(queue);
}

}  // namespace

TEST_CASE("all that have stopped are handled before the youngest one stops again") {
  FakeTracer tracer;
  const std::vector<Stop> polls(100, SyscallEntry{});
  for (const pid_t tid : {10, 11, 12}) tracer.add(tid, polls);
  StopQueue queue(tracer);
  std::vector<int> turns(3);
  for (int round = 0; round < 10; ++round) {
    REQUIRE(queue.fill());
    while (const auto next = queue.take()) {
      ++turns[static_cast<size_t>(next->tid - 10)];
      tracer.resume(next->tid, Resume::cont, 0);
    }
  }
  CHECK((turns == std::vector{10, 10, 10}));
}

TEST_CASE("while there is a stop, the caller does not wait") {
  FakeTracer tracer;
  tracer.add(10, {SyscallEntry{}, SyscallExit{}});
  tracer.add(11, {SyscallEntry{}});
  StopQueue queue(tracer);
  REQUIRE(queue.fill());
  CHECK((queue.take() == Stopped{11, SyscallEntry{}}));
  tracer.resume(11, Resume::cont, 0);
  CHECK(queue.fill());
  CHECK((queue.take() == Stopped{10, SyscallEntry{}}));
  CHECK_FALSE(queue.take());
}

TEST_CASE("a wait ends without a stop when a signal comes, and when no tracee is left") {
  FakeTracer tracer;
  StopQueue queue(tracer);
  CHECK_FALSE(queue.fill());
  tracer.add(10);
  CHECK(queue.fill());
  CHECK_FALSE(queue.take());
  tracer.send(10, SIGKILL);
  CHECK(queue.fill());
  CHECK((queue.take() == Stopped{10, Gone{{0, SIGKILL}}}));
  CHECK_FALSE(queue.fill());
}

TEST_CASE("the end of a tracee that was killed takes the place of its stop, unless that tells of another") {
  const Stopped end{11, Gone{{0, SIGKILL}}}, other{10, SyscallEntry{}};
  for (const Stop& stop : std::vector<Stop>{SyscallEntry{}, SignalStop{SIGUSR1}, Exiting{{0, SIGKILL}}, Birth{0}}) {
    CHECK((stops_of_killed(stop) == std::vector{end, other}));
  }
  for (const Stop& stop : std::vector<Stop>{Birth{12}, Exec{13}}) {
    CHECK((stops_of_killed(stop) == std::vector{Stopped{11, stop}, end, other}));
  }
}

TEST_CASE("a stop that is awaited is handled in its turn, and only once") {
  FakeTracer tracer;
  tracer.add(10, {SyscallEntry{}});
  tracer.add(11, {Interrupted{}});
  StopQueue queue(tracer);
  CHECK_FALSE(queue.holds(10));
  queue.await(10);
  CHECK(queue.holds(10));
  queue.await(10);
  queue.await(11);
  queue.await(12);  // which does not exist
  CHECK_FALSE(queue.holds(12));
  CHECK((take_all(queue) == std::vector{Stopped{10, SyscallEntry{}}, Stopped{11, Interrupted{}}}));
}

}  // namespace redrive::stop_queue_test
