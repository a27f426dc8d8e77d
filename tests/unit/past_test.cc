// In which order the events of several units are read.
#include "supervisor/live/past.h"

#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>

#include "logstore/memory_storage.h"
#include "tests/unit/unit_test.h"

namespace redrive::past_test {

namespace {

constexpr int32_t kChild = 102;

// Unit 1 forks unit 2, sends it a signal, and waits for one of it; by the times, the child has its signal before.
class Written {
 public:
  Written() {
    auto writer = TraceWriter::create("/t", Settings{}, storage_).value();
    writer->add(UnitRecord{1, 101, {}, {}});
    writer->add(IntervalRecord{1, 0, CheckpointKind::exec, 0, false, 101, "program", 0});
    Event fork = call(SYS_clone, {SIGCHLD}, kChild, 10);
    fork.child_unit = 2;
    writer->append(1, fork);
    writer->append(1, call(SYS_kill, {kChild, SIGUSR1}, 0, 60));
    writer->append(1, call(SYS_rt_sigtimedwait, {}, SIGUSR2, 70));
    writer->add(UnitRecord{2, kChild, {1, 0}, {}});
    writer->add(IntervalRecord{2, 0, CheckpointKind::fork, 0, false, kChild, "program", 0});
    writer->append(2, call(SYS_rt_sigtimedwait, {}, SIGUSR1, 50));
    writer->append(2, call(SYS_kill, {101, SIGUSR2}, 0, 80));
    REQUIRE(writer->finish({}));
  }

  // How many signals are pending for both.
  int64_t pending(const SignalCauses& causes) {
    const auto trace = Trace::open("/t", storage_);
    REQUIRE_MESSAGE(trace, trace.error().message);
    const auto past = read_past(**trace, {{1, 3}, {2, 2}}, causes);
    REQUIRE_MESSAGE(past, past.error().message);
    int64_t count = 0;
    for (const auto& [name, process] : past->model.processes()) {
      count += std::distance(process.pending.begin(), process.pending.end());
    }
    return count;
  }

 private:
  static Event call(long number, std::initializer_list<uint64_t> args, int64_t result, uint64_t at_ms) {
    constexpr uint64_t kMillisecond = 1'000'000;
    Event event;
    event.number = static_cast<int32_t>(number);
    std::copy(args.begin(), args.end(), event.args.begin());
    event.result = result;
    event.time = {at_ms * kMillisecond, at_ms * kMillisecond, 0};
    return event;
  }

  MemoryStorage storage_;
};

}  // namespace

TEST_CASE("read_past: a signal is sent before it arrives, whatever the times say") {
  Written written;
  CHECK_EQ(written.pending({}), 2);
  CHECK_EQ(written.pending({{{2, 0}, {1, 1}}, {{1, 2}, {2, 1}}}), 0);
}

TEST_CASE("read_past: sends that contradict each other are read by their times") {
  Written written;
  CHECK_EQ(written.pending({{{2, 0}, {1, 2}}, {{1, 1}, {2, 1}}}), 2);
}

TEST_CASE("read_past: a send that is not in the past is not waited for") {
  Written written;
  CHECK_EQ(written.pending({{{2, 0}, {1, 3}}}), 2);
}

TEST_CASE("add_signals: a receipt needs its send") {
  Communication communication;
  communication.units[1].events = communication.units[2].events = 9;
  communication.units[2].needs.push_back({5, {1, 3}, false});
  add_signals({{{2, 4}, {1, 7}}}, communication);
  const auto& needs = communication.units[2].needs;
  REQUIRE_EQ(needs.size(), 2);
  CHECK_EQ(needs[0].event, 4);
  CHECK(needs[0].sender == EventRef{1, 7});
}

TEST_CASE("read_past: what one unit has sent is in the order in which it was sent, however it was stored") {
  constexpr uint64_t kChannel = 7, kTo_ns = 100'000'000;
  constexpr EventIndex kSends = 200, kStoredFirst = 60;
  MemoryStorage storage;
  auto writer = TraceWriter::create("/t", Settings{}, storage).value();
  writer->add(UnitRecord{1, 101, {}, {}});
  writer->add(IntervalRecord{1, 0, CheckpointKind::exec, 0, false, 101, "program", 0});
  for (EventIndex i = 0; i < kSends; ++i) {
    Event send;
    send.number = SYS_write;
    send.result = 1;
    send.send = Send{kChannel, 1, 0};
    send.time = {10'000'000, kTo_ns, 0};
    writer->append(1, send);
    if (i + 1 == kStoredFirst) REQUIRE(writer->flush());
  }
  REQUIRE(writer->finish({}));
  const auto trace = Trace::open("/t", storage);
  REQUIRE_MESSAGE(trace, trace.error().message);
  const auto past = read_past(**trace, {{1, kSends}}, {});
  REQUIRE_MESSAGE(past, past.error().message);
  std::vector<EventIndex> order;
  for (const auto& piece : past->in_flight.pieces(kChannel)) order.push_back(piece.send.event);
  CHECK_EQ(order.size(), kSends);
  CHECK(std::is_sorted(order.begin(), order.end()));
}

}  // namespace redrive::past_test
