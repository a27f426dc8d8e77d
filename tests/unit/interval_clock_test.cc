// The clock of intervals: CPU time of processes that start, end and change their unit, and served calls in between.
#include "supervisor/record/kernel/interval_clock.h"

#include "tests/unit/fake_tracer.h"
#include "tests/unit/unit_test.h"

namespace redrive::interval_clock_test {

TEST_CASE("an interval's clock is the CPU time of all processes since it began") {
  FakeTracer tracer;
  tracer.cpu_ns_of = {{10, 1000}, {11, 50}};
  IntervalClock clock(tracer);
  CHECK_EQ(clock.cpu_ns(), 0);
  clock.add(10);
  CHECK_EQ(clock.interval_ns(), 1000);
  clock.begin();
  CHECK_EQ(clock.interval_ns(), 0);
  tracer.cpu_ns_of[10] = 1300;
  CHECK_EQ(clock.interval_ns(), 300);
  clock.add(11);
  CHECK_EQ(clock.interval_ns(), 350);
  CHECK_EQ(clock.cpu_ns(), 1350);
  clock.add_replay(7);
  CHECK_EQ(clock.interval_ns(), 357);
  CHECK_EQ(clock.interval_cpu_ns(), 350);
  clock.begin();
  CHECK_EQ(clock.interval_ns(), 0);
  CHECK_EQ(clock.cpu_ns(), 1350);
}

TEST_CASE("what a process has used stays when it ends") {
  FakeTracer tracer;
  tracer.cpu_ns_of = {{10, 1000}, {11, 50}};
  IntervalClock clock(tracer);
  clock.add(10);
  clock.add(11);
  clock.begin();
  tracer.cpu_ns_of = {{10, 1100}, {11, 90}};
  CHECK_EQ(clock.interval_ns(), 140);
  tracer.cpu_ns_of.erase(11);  // the kernel no longer knows it
  CHECK_EQ(clock.interval_ns(), 140);
  clock.remove(11);
  CHECK_EQ(clock.interval_ns(), 140);
  tracer.cpu_ns_of[11] = 5'000'000;  // another process has its number
  CHECK_EQ(clock.interval_ns(), 140);
  clock.remove(12);  // which was never added
  CHECK_EQ(clock.interval_ns(), 140);
}

TEST_CASE("a process that changes its unit takes its time along, and leaves it behind as well") {
  FakeTracer tracer;
  tracer.cpu_ns_of = {{10, 1000}, {11, 50}};
  IntervalClock former(tracer), clock(tracer);
  former.add(10);
  former.add(11);
  former.begin();
  tracer.cpu_ns_of = {{10, 1100}, {11, 60}};
  CHECK_EQ(former.interval_ns(), 110);
  clock.take(former, 11);
  tracer.cpu_ns_of = {{10, 1100}, {11, 80}};
  CHECK_EQ(former.interval_ns(), 110);
  CHECK_EQ(clock.cpu_ns(), 80);
  clock.begin();
  CHECK_EQ(clock.interval_ns(), 0);
  tracer.cpu_ns_of.erase(11);
  clock.remove(11);
  CHECK_EQ(clock.cpu_ns(), 80);
}

TEST_CASE("served calls are spread evenly over the time since the last ones") {
  FakeTracer tracer;
  tracer.cpu_ns_of[10] = 5000;
  IntervalClock clock(tracer);
  clock.add(10);
  clock.begin();
  tracer.cpu_ns_of[10] = 6000;
  clock.begin_served({{3, clock.interval_cpu_ns()}}, 100);  // 1000 of CPU time, 300 for a replay's stops
  CHECK_EQ(clock.interval_ns(), 0);
  for (const uint64_t at_ns : {325, 650, 975}) {
    clock.next_served();
    CHECK_EQ(clock.interval_ns(), at_ns);
    CHECK_EQ(clock.event_ns(), at_ns);
  }
  CHECK_EQ(clock.clock_error_ns(), 975);  // the first and the last were at some time from 0 to 1300
  clock.end_served();
  CHECK_EQ(clock.interval_ns(), 1300);
  SUBCASE("the next ones go on where these were taken off") {
    tracer.cpu_ns_of[10] = 6100;
    clock.begin_served({{1, clock.interval_cpu_ns()}}, 100);
    CHECK_EQ(clock.interval_ns(), 1300);
    clock.next_served();
    CHECK_EQ(clock.interval_ns(), 1400);
  }
  SUBCASE("none comes before an event that was no served call") {
    tracer.cpu_ns_of[10] = 6400;
    CHECK_EQ(clock.event_ns(), 1700);
    CHECK_EQ(clock.clock_error_ns(), 975);  // that of an event at which the clock is read is exact
    tracer.cpu_ns_of[10] = 6500;
    clock.begin_served({{1, clock.interval_cpu_ns()}}, 100);
    clock.next_served();
    CHECK_EQ(clock.interval_ns(), 1800);
  }
  SUBCASE("calls that were taken off before an event stay at it") {
    CHECK_EQ(clock.event_ns(), 1300);
    clock.begin_served({{1, 900}}, 0);  // 1200
    CHECK_EQ(clock.interval_ns(), 1200);
    clock.next_served();
    CHECK_EQ(clock.interval_ns(), 1200);
  }
  SUBCASE("a new interval begins anew") {
    clock.begin();
    CHECK_EQ(clock.interval_ns(), 0);
    CHECK_EQ(clock.clock_error_ns(), 0);
    tracer.cpu_ns_of[10] = 6200;
    clock.begin_served({{1, clock.interval_cpu_ns()}}, 0);
    clock.next_served();
    CHECK_EQ(clock.interval_ns(), 100);
  }
}

TEST_CASE("served calls are spread between the readings of the clock") {
  FakeTracer tracer;
  tracer.cpu_ns_of[10] = 0;
  IntervalClock clock(tracer);
  clock.add(10);
  clock.begin();
  // Two calls within 300 ns, none for a while, and then three, one of which stands for four.
  tracer.cpu_ns_of[10] = 9500;
  clock.begin_served({{2, 300}, {2, 9000}, {8, clock.interval_cpu_ns()}}, 0);
  std::vector<uint64_t> times;
  for (int call = 0; call < 5; ++call) {
    clock.next_served();
    times.push_back(clock.event_ns());
    if (call == 3) clock.skip_served(3);
  }
  clock.end_served();
  CHECK_EQ(times, std::vector<uint64_t>{100, 200, 9071, 9142, 9426});
  CHECK_EQ(clock.clock_error_ns(), 429);
  CHECK_EQ(clock.interval_ns(), 9500);
}

TEST_CASE("what a replay needs for a served call counts from this call on") {
  FakeTracer tracer;
  tracer.cpu_ns_of[10] = 0;
  IntervalClock clock(tracer);
  clock.add(10);
  clock.begin();
  tracer.cpu_ns_of[10] = 1000;
  clock.begin_served({{1, 400}, {3, clock.interval_cpu_ns()}}, 10);
  std::vector<uint64_t> times;
  for (int call = 0; call < 3; ++call) {
    clock.next_served();
    times.push_back(clock.event_ns());
    if (call == 0) clock.add_replay(5000);
  }
  clock.end_served();
  CHECK_EQ(times, std::vector<uint64_t>{205, 5616, 5822});
  CHECK_EQ(clock.interval_ns(), 6030);
}

}  // namespace redrive::interval_clock_test
