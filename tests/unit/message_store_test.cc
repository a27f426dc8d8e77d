// Waiting for what others publish, and being told that nobody will. Each waiter stands for an interval being re-driven.
#include "supervisor/replay/message_store.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/unit/unit_test.h"

namespace redrive::message_store_test {

namespace {

constexpr EventRef kA{1, 10}, kB{2, 20}, kC{3, 30};

// The interval that executes an event, of those below.
size_t executor(EventRef event) { return event.unit - 1; }
constexpr uint32_t kReceiver = 3;

// Messages with room for 16 bytes, needed by an interval that executes nothing else. The unit of each event has one
// interval; those that the test leaves out do not run.
std::unique_ptr<MessageStore> made(std::vector<EventRef> sends, std::set<EventRef> births, size_t running) {
  std::vector<NeededSend> needed;
  for (const EventRef send : sends) needed.push_back({send, 16, kReceiver});
  const std::vector<ExecutedEvents> intervals{{1, 0, 100}, {2, 0, 100}, {3, 0, 100}, {4, 0, 100}};
  auto store = MessageStore::make(intervals, needed, std::move(births));
  REQUIRE(store);
  for (size_t i = 0; i < intervals.size(); ++i) (*store)->interval_starts(i, 0);
  for (size_t i = running; i < intervals.size(); ++i) (*store)->interval_stands();
  return std::move(*store);
}

Bytes bytes(std::string_view text) { return Bytes(text.begin(), text.end()); }

std::future<Result<Bytes>> waiter(MessageStore& store, EventRef sender, uint64_t offset = 0, uint64_t length = 1) {
  return std::async(std::launch::async,
                    [&store, part = MessagePart{sender, offset, length, 0}] { return store.payload(part); });
}

// A process that waits to be ended: by a signal that doctest does not handle, for a fork inherits its handlers.
pid_t sleeper() {
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  REQUIRE(pid > 0);
  return pid;
}

// Reaps a child; the signal that ended it.
int ended_by(pid_t pid) {
  int status = 0;
  REQUIRE_EQ(waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("only what an interval needs is wanted") {
  const auto owner = made({kA}, {kB}, 1);
  const MessageStore& store = *owner;
  CHECK(store.payloads().index(kA));
  CHECK_FALSE(store.payloads().index(kB));
  CHECK(store.wants_birth(kB));
  CHECK_FALSE(store.wants_birth(kA));
}

TEST_CASE("a payload can be had as often as it is asked for, in parts") {
  const auto owner = made({kA}, {}, 1);
  MessageStore& store = *owner;
  store.publish(kA, bytes("payload"));
  store.publish(kB, bytes("not needed"));
  CHECK(store.payload({kA, 0, 7, 0}).value() == bytes("payload"));
  CHECK(store.payload({kA, 3, 2, 0}).value() == bytes("lo"));
  CHECK(store.payload({kA, 7, 0, 0}).value().empty());
}

TEST_CASE("a part beyond what was sent is refused") {
  const auto owner = made({kA}, {}, 1);
  MessageStore& store = *owner;
  store.publish(kA, bytes("short"));
  for (const auto& [offset, length] :
       {std::pair<uint64_t, uint64_t>{0, 6}, {5, 1}, {6, 0}, {2, UINT64_MAX}, {UINT64_MAX, 2}}) {
    CAPTURE(offset);
    CAPTURE(length);
    const auto part = store.payload({kA, offset, length, 0});
    REQUIRE_FALSE(part);
    CHECK_EQ(part.error().message, "unit 1 sent a shorter message than it did when recorded");
  }
  CHECK(store.payload({kA, 0, 5, 0}));  // the others go on
}

TEST_CASE("receivers wait for their senders") {
  const auto owner = made({kA, kB}, {}, 3);
  MessageStore& store = *owner;
  std::atomic<bool> sent = false;
  const auto receives = [&](EventRef from) {
    return std::async(std::launch::async, [&, from] {
      const auto got = store.payload({from, 0, 1, 0});
      return sent && got ? got.value() : Bytes();
    });
  };
  auto first = receives(kA), second = receives(kA);
  sent = true;
  store.publish(kA, bytes("x"));
  CHECK(first.get() == bytes("x"));
  CHECK(second.get() == bytes("x"));
}

TEST_CASE("a chain of waiters is released one after the other") {
  const auto owner = made({kA, kB, kC}, {}, 4);
  MessageStore& store = *owner;
  const auto forward = [&](EventRef from, EventRef to) {
    return std::async(std::launch::async, [&, from, to] {
      const auto got = store.payload({from, 0, 1, 0});
      if (got) store.publish(to, got.value());
      store.interval_ended(executor(to), got ? std::nullopt : std::optional(got.error()));
      return static_cast<bool>(got);
    });
  };
  auto last = waiter(store, kC);
  auto second = forward(kB, kC), first = forward(kA, kB);
  store.publish(kA, bytes("x"));
  store.interval_ended(executor(kA), std::nullopt);
  CHECK(first.get());
  CHECK(second.get());
  CHECK(last.get().value() == bytes("x"));
}

TEST_CASE("an interval that waits for a sender that never gets there is told") {
  const auto owner = made({kA, kB}, {}, 2);
  MessageStore& store = *owner;
  auto waiting = waiter(store, kA);
  std::string why;
  SUBCASE("because it ended early") { store.interval_ended(executor(kA), std::nullopt); }
  SUBCASE("because it failed") {
    store.interval_ended(executor(kA), Error{"it has no memory"});
    why = ": it has no memory";
  }
  SUBCASE("because all others have ended, one of which failed") {
    store.interval_ended(executor(kB), Error{"it has no memory"});
  }
  SUBCASE("because all others have ended") { store.interval_ended(executor(kB), std::nullopt); }
  SUBCASE("because it sent something else") {
    store.publish(kB, bytes("x"));
    store.interval_ended(executor(kA), std::nullopt);
  }
  const auto got = waiting.get();
  REQUIRE_FALSE(got);
  CHECK_EQ(got.error().message, "the sender did not get to event 10 of unit 1" + why);
}

TEST_CASE("those who wait for each other are told what failed first, and with which status") {
  const auto owner = made({kA}, {kB, kC}, 4);
  MessageStore& store = *owner;
  store.interval_ended(executor(kA), Error{"the image is damaged", Status::damaged});
  const auto first = store.payload({kA, 0, 1, 0});
  REQUIRE_FALSE(first);
  store.interval_ended(executor(kB), first.error());
  const auto second = store.birth(kB);
  REQUIRE_FALSE(second);
  store.interval_ended(executor(kC), second.error());
  const auto third = store.birth(kC);
  REQUIRE_FALSE(third);
  CHECK_EQ(third.error().message, "the parent, unit 3, did not get to its fork: the image is damaged");
  CHECK_EQ(third.error().status, Status::damaged);
}

TEST_CASE("who waits for a turn that never comes is told what failed") {
  const auto owner = made({}, {}, 2);
  owner->keep_order_of({1, 2});
  owner->interval_ended(executor(kA), Error{"it has no memory"});
  const auto turn = owner->await_turn(2);
  REQUIRE_FALSE(turn);
  CHECK_EQ(turn.error().message, "a receive that came before no. 2 did not happen: it has no memory");
}

TEST_CASE("a lone interval does not wait for itself") {
  const auto owner = made({kA}, {kB}, 1);
  MessageStore& store = *owner;
  CHECK_FALSE(store.payload({kA, 0, 1, 0}));
  const auto birth = store.birth(kB);
  REQUIRE_FALSE(birth);
  CHECK_EQ(birth.error().message, "the parent, unit 2, did not get to its fork");
}

TEST_CASE("a circle of waiters is a deadlock, and all are told") {
  for (int round = 0; round < 50; ++round) {
    const auto owner = made({kA, kB}, {kC}, 3);
    MessageStore& store = *owner;
    auto first = waiter(store, kA), second = waiter(store, kB);
    auto third = std::async(std::launch::async, [&] { return static_cast<bool>(store.birth(kC)); });
    CHECK_FALSE(first.get());
    CHECK_FALSE(second.get());
    CHECK_FALSE(third.get());
  }
}

TEST_CASE("a waiter that has been served but not run yet is no deadlock") {
  for (int round = 0; round < 50; ++round) {
    const auto owner = made({kA, kB}, {}, 2);
    MessageStore& store = *owner;
    auto second = std::async(std::launch::async, [&] {
      const auto got = store.payload({kA, 0, 1, 0});
      if (got) store.publish(kB, bytes("y"));
      return static_cast<bool>(got);
    });
    store.publish(kA, bytes("x"));
    CHECK(store.payload({kB, 0, 1, 0}));
    CHECK(second.get());
  }
}

TEST_CASE("a failure ends the waiting for what only that interval could send, and is no deadlock") {
  for (int round = 0; round < 200; ++round) {
    const auto owner = made({kA, kB, kC}, {}, 4);
    MessageStore& store = *owner;
    store.publish(kA, bytes("x"));
    store.interval_ended(executor(kA), std::nullopt);
    auto fails = waiter(store, kB), goes_on = waiter(store, kC);
    store.interval_ended(executor(kB), Error{"it failed"});
    CHECK(store.payload({kA, 0, 1, 0}));
    CHECK_FALSE(fails.get());
    store.publish(kC, bytes("x"));
    CHECK(goes_on.get());
  }
}

TEST_CASE("a parent waits while too many of the children are left") {
  std::set<EventRef> forks;
  for (EventIndex event = 0; event < 80; ++event) forks.insert({1, event});
  const auto made = MessageStore::make({{1, 0, 100}, {2, 0, 1}}, {}, forks);
  REQUIRE(made);
  MessageStore& store = **made;
  std::atomic<size_t> published = 0;
  std::vector<pid_t> children;
  for (const EventRef& fork : forks) {
    static_cast<void>(fork);
    children.push_back(sleeper());
  }
  auto parent = std::async(std::launch::async, [&] {
    for (const EventRef& fork : forks) {
      ForkedChild birth;
      birth.stub.pid = children[fork.event];
      store.publish(fork, std::move(birth));
      ++published;
    }
  });
  while (store.waiting() == 0) std::this_thread::yield();
  CHECK_LT(published, forks.size());
  CHECK_EQ(store.births_left().size(), published);
  for (const EventRef& fork : forks) CHECK_EQ(store.birth(fork)->stub.pid, children[fork.event]);
  parent.get();
  CHECK_EQ(store.waiting(), 0);
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    ended_by(child);
  }
}

TEST_CASE("a birth is taken over once; those left over are ended") {
  const pid_t taken = sleeper(), left = sleeper();
  {
    const auto owner = made({}, {kA, kB}, 2);
    MessageStore& store = *owner;
    auto waiting = std::async(std::launch::async, [&] { return store.birth(kA); });
    ForkedChild never_taken, birth;
    never_taken.stub.pid = left;
    store.publish(kB, std::move(never_taken));
    birth.stub.pid = taken;
    birth.brk = 0x1234;
    birth.regs.rip = 99;
    store.publish(kA, std::move(birth));
    const auto got = waiting.get();
    REQUIRE(got);
    CHECK_EQ(got->stub.pid, taken);
    CHECK_EQ(got->brk, 0x1234);
    CHECK_EQ(got->regs.rip, 99);
    store.interval_ended(executor(kA), std::nullopt);
    CHECK_FALSE(store.birth(kA));
  }
  CHECK_EQ(ended_by(left), SIGKILL);
  CHECK_EQ(kill(taken, SIGUSR1), 0);
  CHECK_EQ(ended_by(taken), SIGUSR1);  // and not by the store before
}

TEST_CASE(
    "a trace in which an event bears a process and sends a message is damaged, and nobody waits for that message") {
  const auto owner = made({kA}, {kA}, 1);
  MessageStore& store = *owner;
  store.publish(kA, bytes("falsified"));
  const auto payload = waiter(store, kA).get();
  REQUIRE_FALSE(payload);
  CHECK_EQ(payload.error().status, Status::damaged);
  auto waiting = std::async(std::launch::async, [&] { return store.birth(kA); });
  store.interval_ended(executor(kA), std::nullopt);
  CHECK_FALSE(waiting.get());
}

TEST_CASE("what stands is not waited for, and may be once it goes on") {
  const auto owner = made({kA}, {}, 2);
  MessageStore& store = *owner;
  store.interval_stands();
  CHECK_FALSE(store.payload({kA, 0, 1, 0}));
  const auto again = made({kA}, {}, 1);
  again->interval_stands();
  again->intervals_go_on(2);
  auto waiting = waiter(*again, kA);
  again->publish(kA, bytes("x"));
  CHECK(waiting.get());
}

TEST_CASE("turns are taken in the order of arrivals, whoever comes first") {
  for (int round = 0; round < 50; ++round) {
    const auto owner = made({}, {}, 3);
    MessageStore& store = *owner;
    store.keep_order_of({9, 2, 4, 7, 5, 1});
    size_t started = 0;
    const auto receives = [&](std::vector<uint64_t> arrivals) {
      return std::async(std::launch::async, [&store, arrivals, unit = started++] {
        for (const uint64_t arrival : arrivals) {
          if (!store.await_turn(arrival)) return false;
          store.turn_taken(arrival);
        }
        store.interval_ended(unit, std::nullopt);
        return true;
      });
    };
    auto first = receives({5, 9}), second = receives({2, 7}), third = receives({1, 4});
    CHECK(first.get());
    CHECK(second.get());
    CHECK(third.get());
    CHECK(store.turns_taken() == std::vector<uint64_t>{1, 2, 4, 5, 7, 9});
  }
}

TEST_CASE("a turn that cannot come is a deadlock, and all are told") {
  const auto owner = made({kA}, {}, 2);
  MessageStore& store = *owner;
  store.keep_order_of({1, 2});
  auto waiting = waiter(store, kA);
  CHECK_FALSE(store.await_turn(2));
  CHECK_FALSE(waiting.get());
}

}  // namespace redrive::message_store_test
