// Which sends of signals their receipts depend on.
#include "supervisor/live/signal_log.h"

#include <signal.h>

#include "tests/unit/unit_test.h"

namespace redrive::signal_log_test {

namespace {

constexpr int32_t kProcess = 100, kThread = 105;
constexpr UnitId kReceiver = 1;

// Times are in seconds, and events have the numbers of their times.
class Story {
 public:
  SignalLog log;

  void sent(UnitId unit, uint64_t from_s, uint64_t to_s, bool to_thread = false) {
    log.sent.push_back({{unit, to_s}, time(from_s, to_s), SIGUSR1, to_thread ? kThread : kProcess, to_thread});
  }
  // A child of the receiver ends.
  void ended(UnitId unit, uint64_t from_s, uint64_t to_s) {
    log.sent.push_back({{unit, to_s}, time(from_s, to_s), SIGCHLD, kProcess, false, static_cast<int32_t>(unit)});
  }
  void reaped(UnitId unit, EventIndex at) { log.waits.push_back({{kReceiver, at}, static_cast<int32_t>(unit)}); }
  void received(uint64_t from_s, uint64_t to_s, int number = SIGUSR1) {
    log.received.push_back({{kReceiver, to_s}, time(from_s, to_s), number, kProcess, kThread});
  }
  std::vector<EventRef> causes_of(uint64_t to_s) const {
    std::vector<EventRef> found;
    const SignalCauses all = causes_of_signals(log);
    const auto [first, last] = all.equal_range({kReceiver, to_s});
    for (auto each = first; each != last; ++each) found.push_back(each->second);
    return found;
  }

 private:
  static EventTime time(uint64_t from_s, uint64_t to_s) {
    constexpr uint64_t kSecond = 1'000'000'000;
    return {from_s * kSecond, to_s * kSecond, to_s * kSecond};
  }
};

using Refs = std::vector<EventRef>;

}  // namespace

TEST_CASE("causes_of_signals: a receipt depends on what was sent before it, each send once") {
  Story story;
  story.sent(2, 1, 2);
  story.sent(3, 3, 4);
  story.received(5, 6);
  story.received(7, 8);
  story.sent(2, 9, 10);
  story.received(11, 12);
  CHECK(story.causes_of(6) == Refs{{2, 2}, {3, 4}});  // two that arrive as one
  CHECK(story.causes_of(8).empty());
  CHECK(story.causes_of(12) == Refs{{2, 10}});
}

TEST_CASE("causes_of_signals: where times overlap, the first that can be it") {
  Story story;
  story.sent(2, 1, 9);
  story.sent(2, 1, 10);
  story.received(3, 8);
  story.received(3, 9);
  CHECK(story.causes_of(8) == Refs{{2, 9}});
  CHECK(story.causes_of(9) == Refs{{2, 10}});
}

TEST_CASE("causes_of_signals: a call that sends may be seen to end after the signal has arrived, but not much") {
  Story story;
  story.log.sent.push_back({{2, 1}, {5'010'000'000, 5'020'000'000, 0}, SIGUSR1, kProcess, false});
  story.received(4, 5);
  CHECK(story.causes_of(5) == Refs{{2, 1}});
  story.log.sent.back().time = {6'000'000'000, 6'000'000'000, 0};
  CHECK(story.causes_of(5).empty());
}

TEST_CASE("causes_of_signals: what a unit sends itself is no need, and not another one's") {
  Story story;
  story.sent(kReceiver, 1, 2);
  story.sent(2, 1, 9);
  story.received(3, 4);
  CHECK(story.causes_of(4).empty());
  story.received(5, 6);
  CHECK(story.causes_of(6) == Refs{{2, 9}});
}

TEST_CASE("causes_of_signals: of the same signal, to the same process or thread") {
  Story story;
  story.sent(2, 1, 2, true);
  story.received(3, 4, SIGUSR2);
  story.received(5, 6);
  CHECK(story.causes_of(4).empty());
  CHECK(story.causes_of(6) == Refs{{2, 2}});
  story.log.received.back().thread = kProcess;
  CHECK(story.causes_of(6).empty());
}

TEST_CASE("causes_of_signals: a process sends SIGCHLD some time after its last event, and before it is waited for") {
  Story story;
  story.ended(2, 1, 2);
  story.ended(3, 3, 4);
  story.received(5, 6, SIGCHLD);
  story.reaped(2, 7);
  story.reaped(3, 8);
  story.received(9, 10, SIGCHLD);
  story.ended(4, 11, 12);
  CHECK(story.causes_of(6) == Refs{{2, 2}});
  CHECK(story.causes_of(10) == Refs{{3, 4}});
}

TEST_CASE("causes_of_signals: processes whose numbers are the same") {
  Story story;
  story.ended(2, 1, 2);
  story.log.sent.push_back({{3, 4}, story.log.sent.back().time, SIGCHLD, kProcess, false, 2});
  story.reaped(2, 3);
  story.received(5, 6, SIGCHLD);
  CHECK(story.causes_of(6) == Refs{{2, 2}});
}

TEST_CASE("causes_of_signals: what the receiver makes later has sent nothing before") {
  Story story;
  story.log.births = {{2, {kReceiver, 7}}, {3, {2, 0}}, {4, {kReceiver, 1}}};
  story.sent(2, 1, 9);
  story.sent(3, 1, 10);
  story.sent(4, 1, 11);
  story.received(5, 6);
  CHECK(story.causes_of(6) == Refs{{4, 11}});
}

TEST_CASE("causes_of_signals: without times nothing is known") {
  Story story;
  story.sent(2, 0, 0);
  story.received(5, 6);
  CHECK(story.causes_of(6).empty());
}

}  // namespace redrive::signal_log_test
