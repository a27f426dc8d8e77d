// Of which checkpoints an image is made when a replay comes by.
#include "supervisor/replay/checkpoints_due.h"

#include <set>

#include "tests/unit/unit_test.h"

namespace redrive::checkpoints_due_test {

namespace {

std::vector<IntervalRecord> beginning_at(const std::vector<EventIndex>& first_events) {
  std::vector<IntervalRecord> records;
  for (const EventIndex first : first_events) {
    records.emplace_back().interval = static_cast<IntervalIndex>(records.size() - 1);
    records.back().first_event = first;
  }
  return records;
}

CheckpointsDue::Wanted any_of(std::set<IntervalIndex> wanted) {
  return [wanted](IntervalIndex interval) { return wanted.contains(interval); };
}

// The checkpoints due before the event, in their order.
std::vector<IntervalIndex> before(CheckpointsDue& due, EventIndex event, EventKind kind = EventKind::syscall) {
  std::vector<IntervalIndex> found;
  while (const auto next = due.next(event, kind)) found.push_back(next->interval);
  return found;
}

using Found = std::vector<IntervalIndex>;

}  // namespace

TEST_CASE("checkpoints due: those that are wanted, each once, after the place where it starts") {
  const auto intervals = beginning_at({0, 10, 20, 30});
  CheckpointsDue due(intervals, 1, any_of({0, 2, 3}));
  CHECK_EQ(before(due, 10), Found{});
  CHECK_EQ(before(due, 19), Found{});
  CHECK_EQ(before(due, 20), Found{2});
  CHECK_EQ(before(due, 20), Found{});
  CHECK_EQ(before(due, 30), Found{3});
}

TEST_CASE("checkpoints due: that which it starts from, if it has no image") {
  auto intervals = beginning_at({0, 10});
  CheckpointsDue born(intervals, 0, any_of({0, 1}));
  const auto first = born.next(0, EventKind::syscall);
  REQUIRE(first);
  CHECK_EQ(first->interval, 0);
  CHECK(first->at_birth);
  const auto second = born.next(10, EventKind::syscall);
  REQUIRE(second);
  CHECK_FALSE(second->at_birth);
  intervals[0].has_image = true;
  CheckpointsDue restored(intervals, 0, any_of({0, 1}));
  CHECK_EQ(before(restored, 0), Found{});
}

TEST_CASE("checkpoints due: none where a thread was preempted, and none that was passed") {
  const auto intervals = beginning_at({0, 10, 20});
  CheckpointsDue due(intervals, 0, any_of({1, 2}));
  CHECK_EQ(before(due, 10, EventKind::preemption), Found{});
  CHECK_EQ(before(due, 21), Found{});
}

}  // namespace redrive::checkpoints_due_test
