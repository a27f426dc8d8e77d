// Times of events: those of stops, those of served calls from the looks at their stamps, and the wall clock.
#include "supervisor/record/kernel/event_clock.h"

#include "logstore/memory_storage.h"
#include "supervisor/tier/gate_arena.h"
#include "tests/unit/fake_tracer.h"
#include "tests/unit/logstore_sample.h"
#include "tests/unit/unit_test.h"

namespace redrive::event_clock_test {
using namespace std::chrono_literals;

namespace {

constexpr uint64_t kMillisecond = 1'000'000;

class Recording {
 public:
  Recording() : writer_(std::move(TraceWriter::create("/t", sample::settings(), storage_).value())) {
    tracer.pass(1h);
    tracer.wall_clock_ns = 1'795'000'000'000'000'000;
  }
  TraceWriter& writer() { return *writer_; }
  std::shared_ptr<Trace> trace() {
    REQUIRE(writer_->flush());
    return Trace::open("/t", storage_).value();
  }
  uint64_t now_ns() const { return since_boot_ns(tracer.now()); }

  FakeTracer tracer;

 private:
  MemoryStorage storage_;
  std::unique_ptr<TraceWriter> writer_;
};

// Time passes while it is read.
class PassingTime : public FakeTracer {
 public:
  Clock::time_point now() const override {
    const_cast<PassingTime*>(this)->pass(1us);
    return FakeTracer::now();
  }
};

// A call takes a stamp in a program.
void take_stamps(GateArena& arena, uint64_t calls) {
  __atomic_fetch_add(&reinterpret_cast<gate::Clock*>(arena.clock().data())->now, calls, __ATOMIC_SEQ_CST);
}

}  // namespace

TEST_CASE("events of a stop have the time at which it was seen") {
  Recording recording;
  EventClock clock(recording.tracer, recording.writer(), nullptr);
  recording.tracer.pass(5ms);
  clock.saw_stop();
  clock.end_served();
  const uint64_t seen_ns = recording.now_ns();
  CHECK_EQ(clock.now(), EventTime{seen_ns, seen_ns, 0});
  // While a stop is handled, another thread may have run and stopped.
  recording.tracer.pass(1ms);
  clock.end_served();
  CHECK_EQ(clock.now().from_ns, seen_ns + kMillisecond);
}

TEST_CASE("served calls were made between the looks at which their stamps were not taken yet, and were") {
  Recording recording;
  const auto arena = GateArena::make();
  REQUIRE(arena);
  EventClock clock(recording.tracer, recording.writer(), arena->get());
  const uint64_t start_ns = recording.now_ns();
  const auto look = [&](uint64_t calls) {
    take_stamps(**arena, calls);
    clock.saw_stop();
    clock.look((*arena)->now());
    recording.tracer.pass(1ms);
  };
  recording.tracer.pass(1ms);
  look(3);  // at 1 ms: 1 to 3
  look(0);  // at 2 ms
  look(2);  // at 3 ms: 4 and 5
  clock.begin_served();
  const auto bounds = [&](uint64_t stamp, uint64_t time_ns = 0) {
    clock.at_record(stamp, time_ns);
    return std::pair(clock.now().from_ns - start_ns, clock.now().to_ns - start_ns);
  };
  CHECK_EQ(bounds(1), std::pair(0 * kMillisecond, 1 * kMillisecond));
  CHECK_EQ(bounds(3), std::pair(0 * kMillisecond, 1 * kMillisecond));
  CHECK_EQ(bounds(4), std::pair(2 * kMillisecond, 3 * kMillisecond));
  // A noted time counts if it is possible.
  const uint64_t noted_ns = start_ns + 2 * kMillisecond + 5;
  CHECK_EQ(bounds(5, noted_ns), std::pair(2 * kMillisecond + 5, 2 * kMillisecond + 5));
  CHECK_EQ(bounds(5, start_ns + 4 * kMillisecond), std::pair(2 * kMillisecond, 3 * kMillisecond));

  // The next calls, whose events are made later.
  look(1);  // at 4 ms: 6
  clock.begin_served();
  CHECK_EQ(bounds(6), std::pair(3 * kMillisecond, 4 * kMillisecond));
  clock.at_record(7, 0);  // no look has seen that stamp: the program wrote it
  CHECK_FALSE(clock.now().known());
  clock.saw_stop();
  clock.end_served();
  CHECK_EQ(clock.now().from_ns, recording.now_ns());
}

TEST_CASE("calls note their times as long as they are few") {
  Recording recording;
  const auto arena = GateArena::make();
  REQUIRE(arena);
  const auto& orders = *reinterpret_cast<const gate::Orders*>((*arena)->code().data() + (gate::kOrders - gate::kCode));
  const auto notes_every = [&] { return __atomic_load_n(&orders.notes_every, __ATOMIC_ACQUIRE); };
  EventClock clock(recording.tracer, recording.writer(), arena->get());
  CHECK_EQ(notes_every(), 1);
  const auto pass = [&](uint64_t calls) {
    recording.tracer.pass(10ms);
    take_stamps(**arena, calls);
    clock.saw_stop();
    clock.look((*arena)->now());
  };
  pass(100);
  CHECK_EQ(notes_every(), 1);
  pass(5000);
  CHECK_EQ(notes_every(), 200);
  pass(0);
  CHECK_EQ(notes_every(), 200);  // it may be a pause
  for (int i = 0; i < 30; ++i) pass(1);
  CHECK_EQ(notes_every(), 1);
}

TEST_CASE("it is noted when somebody sets the wall clock") {
  Recording recording;
  EventClock clock(recording.tracer, recording.writer(), nullptr);
  const uint64_t start_ns = recording.now_ns();
  for (int i = 0; i < 10; ++i) {
    recording.tracer.pass(20ms);
    if (i == 5) recording.tracer.wall_clock_ns -= 1'000'000'000;
    clock.saw_stop();
  }
  const auto trace = recording.trace();
  const auto at = [&](uint64_t ms) { return wall_clock(*trace).at(start_ns + ms * kMillisecond).value(); };
  const auto wall_ns = [&](uint64_t ms) {
    return 1'795'000'000'000'000'000 + static_cast<int64_t>(start_ns + ms * kMillisecond);
  };
  CHECK_EQ(at(0).unix_ns, wall_ns(0));
  CHECK_EQ(at(90).unix_ns, wall_ns(90));
  CHECK_EQ(at(90).error_ns, 0);
  CHECK_EQ(at(110).error_ns, 1'000'000'000);
  CHECK_EQ(at(130).unix_ns, wall_ns(130) - 1'000'000'000);
  CHECK_EQ(at(130).error_ns, 0);
}

TEST_CASE("the wall clock may be set again and again, as a hypervisor does that keeps it right") {
  Recording recording;
  PassingTime tracer;
  tracer.pass(1h);
  EventClock clock(tracer, recording.writer(), nullptr);
  for (int i = 0; i < 5; ++i) {
    tracer.pass(100ms);
    tracer.wall_clock_ns += 500'000;
    clock.saw_stop();
  }
  CHECK(wall_clock(*recording.trace()).at(since_boot_ns(tracer.now())));
}

}  // namespace redrive::event_clock_test
