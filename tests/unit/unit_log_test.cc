// How a unit's log combines entries, exits and series, read back from the trace.
#include "supervisor/record/tracees/unit_log.h"

#include <random>

#include "logstore/memory_storage.h"
#include "tests/unit/unit_test.h"

namespace redrive::unit_log_test {

namespace {

constexpr UnitId kUnit = 3;
constexpr int32_t kPoll = 7, kRead = 0, kWrite = 1;

Event entry(ThreadSerial thread, int32_t number, uint64_t first_arg = 0) {
  Event event;
  event.thread = thread;
  event.number = number;
  event.args[0] = first_arg;
  event.ip = 0x400000 + first_arg;
  event.regs_hash = RegistersHash::of_call(17);
  event.in_hash = 23;
  return event;
}

Event exit(ThreadSerial thread, int64_t result) {
  Event event;
  event.thread = thread;
  event.result = result;
  return event;
}

Event signal(ThreadSerial thread) {
  Event event;
  event.kind = EventKind::signal;
  event.thread = thread;
  event.number = 10;
  return event;
}

void open(UnitLog& log, const Event& entry) {
  Event& event = log.open();
  const EventTime now = event.time;
  event = entry;
  event.time = now;
}

// `exit`: what is noted at the exit of a call.
void close(UnitLog& log, const Event& exit, bool test, uint64_t times = 1, uint32_t cycle = 1) {
  Event& event = log.closing(exit.thread, exit.number);
  event.result = exit.result;
  event.writes = exit.writes;
  event.receive = exit.receive;
  if (exit.child_unit) event.child_unit = exit.child_unit;
  log.close(test, times, cycle);
}

// A log in a trace in memory.
class Recording {
 public:
  Recording() : writer_(TraceWriter::create("/t", Settings{}, storage_).value()), log_(*writer_, kUnit, now_) {
    writer_->add(UnitRecord{kUnit, 100, {}, {}});
  }

  UnitLog& log() { return log_; }
  void pass(uint64_t ms) { now_.from_ns = now_.to_ns += ms * 1'000'000; }

  // A whole call, during which nothing can happen.
  void call(ThreadSerial thread, int32_t number, int64_t result, bool test = false, uint64_t times = 1) {
    open(log_, entry(thread, number));
    close(log_, exit(thread, result), test, times);
  }

  std::vector<Event> events() {
    log_.flush();
    REQUIRE(writer_->flush());
    std::vector<Event> out;
    const auto trace = Trace::open("/t", storage_);
    REQUIRE(trace);
    const Trace& read = *trace.value();
    REQUIRE(read.for_each_event(kUnit, 0, read.event_count(kUnit), [&](EventIndex, const Event& event) {
      out.push_back(event);
      return true;
    }));
    CHECK_EQ(log_.next(), out.size());
    return out;
  }

 private:
  MemoryStorage storage_;
  std::unique_ptr<TraceWriter> writer_;
  EventTime now_;
  UnitLog log_;
};

}  // namespace

TEST_CASE("entry and exit become one event") {
  Recording recording;
  Event enters = entry(1, kWrite, 5);
  enters.send = Send{4, 10, 99};
  enters.child_unit = 8;
  enters.child_thread = 9;
  open(recording.log(), enters);
  Event leaves = exit(1, 10);
  leaves.writes.push_back({0x1000, 2, MemoryWrite::Kind::data, {1, 2}});
  leaves.receive = Receive{2, 3, 4, true, {}};
  close(recording.log(), leaves, false);

  Event expected = enters;
  expected.result = 10;
  expected.writes = leaves.writes;
  expected.receive = leaves.receive;
  const auto events = recording.events();
  REQUIRE_EQ(events.size(), 1);
  CHECK(events[0].kind == EventKind::syscall);
  CHECK(events[0] == expected);
}

TEST_CASE("the child that an exit names is kept") {
  Recording recording;
  Event enters = entry(0, 56);
  enters.child_unit = 8;
  open(recording.log(), enters);
  Event leaves = exit(0, 1234);
  leaves.child_unit = 9;
  close(recording.log(), leaves, false);
  CHECK_EQ(recording.events().at(0).child_unit, 9);
}

TEST_CASE("an entry may be amended while it is open, by its thread only") {
  Recording recording;
  open(recording.log(), entry(1, kRead));
  CHECK(recording.log().open_of(2) == nullptr);
  REQUIRE(recording.log().open_of(1));
  recording.log().open_of(1)->child_thread = 6;
  close(recording.log(), exit(1, 0), false);
  CHECK(recording.log().open_of(1) == nullptr);
  CHECK_EQ(recording.events().at(0).child_thread, 6);
}

TEST_CASE("what comes between an entry and its exit parts them") {
  Recording recording;
  open(recording.log(), entry(1, kRead, 5));
  SUBCASE("another thread's entry") {
    open(recording.log(), entry(2, kWrite));
    CHECK(recording.log().open_of(1) == nullptr);
    close(recording.log(), exit(2, 3), false);
  }
  SUBCASE("another thread's signal") { recording.log().add(signal(2)); }
  Event leaves = exit(1, 7);
  leaves.number = kRead;
  close(recording.log(), leaves, false);

  const auto events = recording.events();
  REQUIRE_EQ(events.size(), 3);
  Event enters = entry(1, kRead, 5);
  enters.kind = EventKind::entry;
  CHECK(events[0] == enters);
  CHECK_EQ(events[1].thread, 2);
  leaves.kind = EventKind::exit;
  CHECK(events[2] == leaves);
}

TEST_CASE("two threads in the kernel at once, the later one out first") {
  Recording recording;
  open(recording.log(), entry(1, kRead));
  open(recording.log(), entry(2, kPoll));
  close(recording.log(), exit(2, 1), true);
  close(recording.log(), exit(1, 7), true);
  const auto events = recording.events();
  REQUIRE_EQ(events.size(), 3);
  CHECK(events[0].kind == EventKind::entry);
  CHECK(events[1].kind == EventKind::syscall);
  CHECK(events[2].kind == EventKind::exit);
  CHECK_EQ(events[2].thread, 1);
}

TEST_CASE("an entry without exit is written as such") {
  Recording recording;
  recording.call(0, kWrite, 1);
  open(recording.log(), entry(0, 60));
  const auto events = recording.events();
  REQUIRE_EQ(events.size(), 2);
  CHECK_EQ(events[0].number, kWrite);
  CHECK(events[1].kind == EventKind::entry);
}

TEST_CASE("a series of equal tests is one event with a count") {
  Recording recording;
  for (int i = 0; i < 1000; ++i) recording.call(0, kPoll, 0, true);
  CHECK_EQ(recording.log().next(), 1);
  recording.call(0, kPoll, 1, true);  // the successful one
  for (int i = 0; i < 2; ++i) recording.call(0, kPoll, 0, true);
  const auto events = recording.events();
  REQUIRE_EQ(events.size(), 3);
  CHECK_EQ(events[0].repeat, 1000);
  CHECK_EQ(events[0].result, 0);
  CHECK_EQ(events[1].repeat, 1);
  CHECK_EQ(events[1].result, 1);
  CHECK_EQ(events[2].repeat, 2);
}

TEST_CASE("a series that comes in parts is one") {
  Recording recording;
  recording.call(0, kPoll, 0, true, 7);
  recording.call(0, kPoll, 0, true);
  recording.call(0, kPoll, 0, true, 20);
  recording.call(0, kPoll, 1, true);
  recording.call(0, kPoll, 0, true, 5);
  const auto events = recording.events();
  REQUIRE_EQ(events.size(), 3);
  CHECK_EQ(events[0].repeat, 28);
  CHECK_EQ(events[1].repeat, 1);
  CHECK_EQ(events[2].repeat, 5);
}

TEST_CASE("what ends a series") {
  Recording recording;
  recording.call(0, kPoll, 0, true);
  size_t expected = 2;
  SUBCASE("another thread") { recording.call(1, kPoll, 0, true); }
  SUBCASE("another place") {
    open(recording.log(), entry(0, kPoll, 4));
    close(recording.log(), exit(0, 0), true);
  }
  SUBCASE("another output") {
    open(recording.log(), entry(0, kPoll));
    Event leaves = exit(0, 0);
    leaves.writes.push_back({0x2000, 1, MemoryWrite::Kind::data, {9}});
    close(recording.log(), leaves, true);
  }
  SUBCASE("a call that is no test") { recording.call(0, kPoll, 0, false); }
  SUBCASE("a signal between") {
    recording.log().add(signal(0));
    recording.call(0, kPoll, 0, true);
    expected = 3;
  }
  SUBCASE("a flush between") {
    recording.log().flush();
    recording.call(0, kPoll, 0, true);
  }
  const auto events = recording.events();
  CHECK_EQ(events.size(), expected);
  for (const auto& event : events) CHECK_EQ(event.repeat, 1);
}

namespace {

// The calls that the events stand for: the first argument of each.
std::vector<uint64_t> calls_of(const std::vector<Event>& events) {
  std::vector<uint64_t> calls;
  for (size_t i = 0; i < events.size(); ++i) {
    calls.push_back(events[i].args[0]);
    REQUIRE(events[i].cycle <= i + 1);
    for (uint64_t n = 0; n + 1 < events[i].repeat; ++n) {
      calls.push_back(events[i + 1 - events[i].cycle + n % events[i].cycle].args[0]);
    }
    // Only the last event of a cycle stands for more than its own call.
    for (uint32_t n = 1; n < events[i].cycle; ++n) CHECK_EQ(events[i - n].repeat, 1);
  }
  return calls;
}

void test_of(UnitLog& log, uint64_t which, uint64_t times = 1, uint32_t cycle = 1) {
  open(log, entry(0, kPoll, which));
  close(log, exit(0, 0), true, times, cycle);
}

}  // namespace

TEST_CASE("a cycle of tests is an event for each and a count") {
  Recording recording;
  std::vector<uint64_t> made;
  const auto make = [&](uint64_t which) {
    test_of(recording.log(), which);
    made.push_back(which);
  };
  for (int i = 0; i < 1001; ++i) make(i % 2);
  CHECK_EQ(recording.log().next(), 2);
  for (int i = 0; i < 100; ++i) make(10 + i % kLongestCycle);
  CHECK_EQ(recording.log().next(), 2 + kLongestCycle);
  for (int i = 0; i < 50; ++i) make(20 + i % (kLongestCycle + 1));  // too long
  const auto events = recording.events();
  CHECK_EQ(events.size(), 2 + kLongestCycle + 50);
  CHECK_EQ(events[1].repeat, 1000);
  CHECK_EQ(events[1].cycle, 2);
  CHECK(calls_of(events) == made);
}

TEST_CASE("any calls are what their events stand for, however they were counted before") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t limit) { return random() % limit; };
    Recording recording;
    std::vector<uint64_t> made;
    for (int part = 0; part < 40; ++part) {
      // As the code inside tracees does: each call of a cycle, then how often they were repeated.
      const auto length = static_cast<uint32_t>(1 + below(kLongestCycle));
      const uint64_t first = below(3), again = below(2) ? below(40) : 0;
      for (uint64_t i = 0; i < length; ++i) {
        test_of(recording.log(), first + i, i + 1 == length ? 1 + again : 1, i + 1 == length ? length : 1);
      }
      for (uint64_t i = 0; i < length + again; ++i) made.push_back(first + i % length);
      if (below(8) == 0) recording.log().flush();
      if (below(8) == 0) {
        recording.call(0, kWrite, 1);
        made.push_back(0);
      }
    }
    const auto events = recording.events();
    CHECK(calls_of(events) == made);
  }
}

TEST_CASE("what ends a cycle") {
  Recording recording;
  UnitLog& log = recording.log();
  for (int i = 0; i < 3; ++i) test_of(log, i % 2);
  const size_t before = 2;
  size_t expected = before + 1;
  SUBCASE("another call than the one whose turn it is") { test_of(log, 0); }
  SUBCASE("another result") {
    open(log, entry(0, kPoll, 1));
    close(log, exit(0, 1), true);
  }
  SUBCASE("another thread's call") {
    open(log, entry(1, kPoll, 1));
    close(log, exit(1, 0), true);
  }
  SUBCASE("a flush") {
    log.flush();
    test_of(log, 1);
  }
  SUBCASE("a signal") {
    log.add(signal(0));
    test_of(log, 1);
    expected = before + 2;
  }
  const auto events = recording.events();
  REQUIRE_EQ(events.size(), expected);
  CHECK_EQ(events[1].repeat, 2);
  CHECK_EQ(events[1].cycle, 2);
  for (size_t i = before; i < expected; ++i) CHECK_EQ(events[i].repeat, 1);
}

TEST_CASE("no cycle spans what came between its calls") {
  Recording recording;
  UnitLog& log = recording.log();
  size_t expected = 4;
  test_of(log, 0);
  SUBCASE("a flush") { log.flush(); }
  SUBCASE("a signal") {
    log.add(signal(0));
    expected = 5;
  }
  SUBCASE("a call that is no test") {
    recording.call(0, kWrite, 1);
    expected = 5;
  }
  SUBCASE("another thread's test") {
    open(log, entry(1, kPoll, 7));
    close(log, exit(1, 0), true);
    expected = 5;
  }
  SUBCASE("a series") {
    for (int i = 0; i < 3; ++i) test_of(log, 5);
    expected = 5;
  }
  test_of(log, 1);
  test_of(log, 0);
  test_of(log, 2);
  const auto events = recording.events();
  REQUIRE_EQ(events.size(), expected);
  for (const auto& event : events) CHECK_EQ(event.cycle, 1);
}

TEST_CASE("calls that are no tests never make a series") {
  Recording recording;
  for (int i = 0; i < 3; ++i) recording.call(0, kWrite, 1);
  CHECK_EQ(recording.events().size(), 3);
}

TEST_CASE("an event's number is known before it happens") {
  Recording recording;
  UnitLog& log = recording.log();
  CHECK_EQ(log.next(), 0);
  open(log, entry(1, kRead));  // event 0
  CHECK_EQ(log.next(), 1);
  open(log, entry(2, kWrite, 42));  // splits the first call: event 1
  CHECK_EQ(log.next(), 2);
  close(log, exit(2, 1), false);
  CHECK_EQ(log.next(), 2);
  close(log, exit(1, 5), false);  // event 2
  CHECK_EQ(log.next(), 3);
  log.add(signal(1));  // event 3
  CHECK_EQ(log.next(), 4);
  log.flush();
  CHECK_EQ(log.next(), 4);
  open(log, entry(1, kWrite, 43));  // event 4
  close(log, exit(1, 1), false);
  const auto events = recording.events();
  REQUIRE_EQ(events.size(), 5);
  CHECK_EQ(events[1].args[0], 42);
  CHECK(events[2].kind == EventKind::exit);
  CHECK(events[3].kind == EventKind::signal);
  CHECK_EQ(events[4].args[0], 43);
}

TEST_CASE("events have the time at which they were complete, and a series that of its first call") {
  Recording recording;
  recording.pass(1000);
  open(recording.log(), entry(1, kWrite, 5));
  recording.pass(10);
  close(recording.log(), exit(1, 10), false);
  recording.pass(10);
  for (int i = 0; i < 5; ++i) {
    recording.call(1, kPoll, 0, true);
    recording.pass(10);
  }
  open(recording.log(), entry(1, kWrite, 5));  // and another thread's call comes before its end
  recording.pass(10);
  recording.call(2, kWrite, 1);
  recording.pass(10);
  close(recording.log(), exit(1, 10), false);
  std::vector<uint64_t> ms;
  for (const Event& event : recording.events()) {
    CHECK_EQ(event.time.from_ns, event.time.to_ns);
    ms.push_back(event.time.at_ns / 1'000'000);
  }
  CHECK(ms == std::vector<uint64_t>{1010, 1020, 1070, 1080, 1090});
}

}  // namespace redrive::unit_log_test
