// Who may run user code, and who waits for that.
#include "supervisor/record/tracees/baton.h"

#include "supervisor/record/tracees/tracee.h"
#include "tests/unit/fake_tracer.h"
#include "tests/unit/unit_test.h"

namespace redrive::baton_test {
using namespace std::chrono_literals;

TEST_CASE("threads get the baton in the order in which they wait for it") {
  FakeTracer tracer;  // for its clock
  Baton baton;
  Thread a, b, c;
  CHECK_FALSE(baton.is_held());
  CHECK_EQ(baton.next(), nullptr);
  baton.give_to(a);
  CHECK_EQ(baton.holder(), &a);
  CHECK_FALSE(baton.is_awaited());
  baton.queue(b);
  baton.queue(c);
  CHECK(baton.is_awaited());
  CHECK_EQ(baton.holder(), &a);
  baton.give_up();
  CHECK_FALSE(baton.is_held());
  tracer.pass(3ms);
  Thread* const next = baton.next();
  CHECK_EQ(next, &b);
  CHECK_FALSE(baton.is_held());
  baton.take(*next, tracer.now());
  CHECK_EQ(baton.holder(), &b);
  CHECK_EQ(baton.since(), tracer.now());
  baton.queue_first(a);
  CHECK_EQ(baton.next(), &a);
  CHECK_EQ(baton.next(), &c);
  CHECK_FALSE(baton.is_awaited());
}

TEST_CASE("a baton that is kept for a woken thread goes to the next one that queues, before all that wait") {
  Baton baton;
  Thread waker, woken, other;
  baton.queue(other);
  baton.keep_for_woken(waker);
  CHECK(baton.is_kept_by(waker));
  CHECK_EQ(baton.next(), nullptr);
  baton.queue(waker);
  CHECK_EQ(baton.next(), nullptr);
  baton.queue(woken);
  CHECK_FALSE(baton.is_kept_by(waker));
  for (Thread* const thread : {&woken, &other, &waker}) CHECK_EQ(baton.next(), thread);

  baton.queue(other);
  baton.keep_for_woken(waker);
  CHECK(baton.stop_keeping());
  CHECK_FALSE(baton.stop_keeping());
  CHECK_EQ(baton.next(), &other);
  baton.keep_for_woken(waker);
  baton.forget(waker);
  baton.queue(other);
  CHECK_EQ(baton.next(), &other);
}

TEST_CASE("a baton that is kept for a thread goes to it when it queues, before all that wait") {
  Baton baton;
  Thread kept, other, late;
  baton.queue(other);
  baton.keep_for(kept);
  CHECK_EQ(baton.kept_for(), &kept);
  CHECK_FALSE(baton.is_kept_by(kept));
  baton.queue(late);
  CHECK_EQ(baton.next(), nullptr);
  baton.queue(kept);
  CHECK_EQ(baton.kept_for(), nullptr);
  for (Thread* const thread : {&kept, &other, &late}) CHECK_EQ(baton.next(), thread);

  baton.queue(other);
  baton.keep_for(kept);
  CHECK(baton.stop_keeping());
  CHECK_EQ(baton.next(), &other);
}

TEST_CASE("steps after calls are taken rarely, and by the threads in turn") {
  auto now = Clock::time_point{} + 1h;
  StepTurns turns;
  CHECK_FALSE(turns.take(1, now, 100ms));
  now += 100ms;
  CHECK(turns.take(1, now, 100ms));
  CHECK_FALSE(turns.take(2, now, 100ms));
  now += kBatonSlice;
  CHECK_FALSE(turns.take(1, now, 100ms));
  CHECK(turns.take(2, now, 100ms));
  now += 1ms;
  turns.took_until(now);
  now += 20ms;  // much more than that
  CHECK_FALSE(turns.take(1, now, 100ms));
  now += 40ms;
  CHECK(turns.take(1, now, 100ms));
  now += 2 * kBatonSlice;
  CHECK(turns.take(1, now, 100ms));  // no other thread has come
}

TEST_CASE("how many steps are taken is of each magnitude, and hardly more than there are before the next event") {
  StepTurns turns;
  unsigned few = 0, many = 0;
  for (int i = 0; i < 1000; ++i) {
    const unsigned steps = turns.steps();
    REQUIRE_GE(steps, 1);
    REQUIRE_LE(steps, kMostSteps);
    few += steps < 8, many += steps >= 64;
  }
  CHECK_GT(few, 200);
  CHECK_GT(many, 200);
  for (int i = 0; i < 100; ++i) {
    turns.came_to_event(10);
    CHECK_LE(turns.steps(), 10);
  }
  turns.came_to_event(0);
  CHECK_EQ(turns.steps(), 1);
  for (int i = 0; i < 100; ++i) turns.steps();
  many = 0;
  for (int i = 0; i < 1000; ++i) many += turns.steps() >= 64;
  CHECK_GT(many, 200);
}

TEST_CASE("threads that have the baton are looked at for a fiftieth of the time, and less if that is in vain") {
  const auto began = Clock::time_point{} + 1h;
  LoopLooks looks;
  const unsigned few = looks.due(began, 0);
  CHECK_GT(few, 0);
  looks.took(few, began, began + 1ms, 0, true);
  CHECK_EQ(looks.due(began + 50ms, 0), 0);
  CHECK_EQ(looks.due(began + 51ms, 0), few);
  looks.took(few, began, began + 1ms, 0, false);
  CHECK_EQ(looks.due(began + 100ms, 0), 0);
  CHECK_EQ(looks.due(began + 101ms, 0), few);
  for (int i = 0; i < 100; ++i) looks.took(few, began, began + 1ms, 0, false);
  CHECK_EQ(looks.due(began + 5s, 0), few);
  looks.took(few, began, began + 1ms, 0, true);
  CHECK_EQ(looks.due(began + 51ms, 0), few);

  // Long ones, where preemptions are many.
  CHECK_EQ(looks.due(began + 51ms, 7), few);
  const unsigned many = looks.due(began, 8);
  CHECK_GT(many, few);
  looks.took(many, began, began + 20ms, 8, false);
  CHECK_EQ(looks.due(began + 2s, 15), few);
  CHECK_EQ(looks.due(began + 2s, 16), few);
  CHECK_EQ(looks.due(began + 3s, 15), few);
  CHECK_EQ(looks.due(began + 3s, 16), many);
}

TEST_CASE("a thread that waits in a loop for one that computes comes round more often before others have their turn") {
  LoopPatience patience;
  const uint64_t first = patience.times();
  patience.gave_way(0);
  CHECK_EQ(patience.times(), first);
  for (uint64_t preemptions = 1; preemptions <= 3; ++preemptions) {
    patience.gave_way(preemptions);
    CHECK_EQ(patience.times(), first << preemptions);
  }
  for (uint64_t preemptions = 4; preemptions < 100; ++preemptions) patience.gave_way(preemptions);
  const uint64_t most = patience.times();
  patience.gave_way(100);
  CHECK_EQ(patience.times(), most);
  patience.gave_way(100);  // it was let round by one that waits, too
  CHECK_EQ(patience.times(), first);
}

TEST_CASE("short turns that end asleep are followed by a hand-over, once in a slice") {
  const auto begin = Clock::time_point{} + 1h;
  LockTurns turns;
  turns.sleeps(false, begin, begin + 2ms);
  CHECK_FALSE(turns.in_vain());  // it may have done something
  turns.sleeps(true, begin, begin + 2ms);
  CHECK(turns.in_vain());
  turns.handed_over(begin + 3ms);
  CHECK_FALSE(turns.in_vain());
  turns.sleeps(true, begin + 3ms, begin + 4ms);
  CHECK_FALSE(turns.in_vain());
  turns.sleeps(false, begin + 3ms + kBatonSlice, begin + 3ms + kBatonSlice + 500us);
  CHECK(turns.in_vain());
}

TEST_CASE("a thread that has ended neither has the baton nor waits for it") {
  Baton baton;
  Thread a, b;
  baton.give_to(a);
  baton.queue(b);
  baton.forget(b);
  CHECK_FALSE(baton.is_awaited());
  CHECK_EQ(baton.holder(), &a);
  baton.forget(a);
  CHECK_FALSE(baton.is_held());
}

TEST_CASE("a thread that need not wait any more leaves the queue, and keeps the baton if it has it") {
  Baton baton;
  Thread a, b, c;
  for (Thread* thread : {&a, &b, &c}) baton.queue(*thread);
  baton.leave_queue(b);
  CHECK_EQ(baton.next(), &a);
  baton.give_to(a);
  baton.leave_queue(a);
  CHECK_EQ(baton.holder(), &a);
  CHECK_EQ(baton.next(), &c);
  CHECK_EQ(baton.next(), nullptr);
}

TEST_CASE("units that become one have one baton") {
  Baton baton, other;
  Thread a, b, c;
  baton.give_to(a);
  baton.queue(b);
  other.queue(c);
  baton.join(other);
  CHECK_FALSE(other.is_awaited());
  CHECK_EQ(baton.holder(), &a);
  CHECK_EQ(baton.next(), &b);
  CHECK_EQ(baton.next(), &c);
}

}  // namespace redrive::baton_test
