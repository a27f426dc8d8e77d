// The planner on small graphs made by hand; on random ones, against a brute-force closure: simulation_test.cc.
#include "supervisor/plan/plan.h"

#include <ctime>
#include <ostream>
#include <random>

#include "tests/unit/unit_test.h"

namespace redrive::plan_test {

namespace {

// Intervals of ten events and 100 ns each.
Rdg graph(UnitId units, IntervalIndex intervals) {
  Rdg out;
  for (UnitId unit = 1; unit <= units; ++unit) {
    for (IntervalIndex i = 0; i < intervals; ++i) {
      out.units[unit].push_back({i * 10, i * 10 + 10, 100, true, std::nullopt});
    }
  }
  return out;
}

void add(Rdg& rdg, EventRef receiver, uint64_t receiver_at_ns, EventRef sender, uint64_t sender_at_ns) {
  rdg.unlogged[receiver.unit].push_back({receiver, sender, receiver_at_ns, sender_at_ns});
}

struct Planned {
  UnitId unit;
  IntervalIndex start, interval;
  EventIndex requisite;
  uint64_t cpu_ns;
  bool operator==(const Planned&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Planned& p) {
  return out << p.unit << ":" << p.start << "-" << p.interval << " to " << p.requisite << " (" << p.cpu_ns << ")";
}

std::vector<Planned> set_of(const PlanResult& result) {
  std::vector<Planned> out;
  REQUIRE(result.plan);
  CHECK_FALSE(result.error);
  for (const auto& p : result.plan->replay_set)
    out.push_back({p.unit, p.start, p.interval, p.requisite_event, p.cpu_ns});
  return out;
}

void check_set(const PlanResult& result, const std::vector<Planned>& expected) {
  const auto found = set_of(result);
  REQUIRE_EQ(found.size(), expected.size());
  uint64_t work_ns = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK_EQ(found[i], expected[i]);
    work_ns += expected[i].cpu_ns;
  }
  CHECK_EQ(result.plan->work_ns, work_ns);
}

void check_error(const PlanResult& result, EventRef missing, EventRef needed_by) {
  CHECK_FALSE(result.plan);
  REQUIRE(result.error);
  CHECK(result.error->missing == missing);
  CHECK(result.error->needed_by == needed_by);
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

TEST_CASE("plan: events are found in their interval, empty ones passed over") {
  Rdg rdg;
  rdg.units[1] = {
      {0, 0, 0, true, {}}, {0, 5, 1, true, {}}, {5, 5, 0, true, {}}, {5, 9, 1, true, {}}, {9, 9, 0, true, {}}};
  CHECK(rdg.interval_of({1, 0}) == 1u);
  CHECK(rdg.interval_of({1, 4}) == 1u);
  CHECK(rdg.interval_of({1, 5}) == 3u);
  CHECK(rdg.interval_of({1, 8}) == 3u);
  CHECK_FALSE(rdg.interval_of({1, 9}));
  CHECK_FALSE(rdg.interval_of({2, 0}));
}

TEST_CASE("plan: without dependences an interval replays alone") {
  const auto result = plan(graph(3, 3), 2, 1);
  check_set(result, {{2, 1, 1, 20, 100}});
  CHECK_EQ(result.plan->unit, 2);
  CHECK_EQ(result.plan->interval, 1);
  CHECK_EQ(result.plan->critical_path_ns, 100);
}

TEST_CASE("plan: a sender is executed up to its last needed send, and only dependences before that count") {
  Rdg rdg = graph(3, 2);
  add(rdg, {1, 12}, 20, {2, 13}, 40);
  add(rdg, {1, 15}, 50, {2, 15}, 60);
  add(rdg, {2, 15}, 55, {3, 4}, 30);
  add(rdg, {2, 16}, 70, {3, 9}, 99);  // after the requisite event
  const auto result = plan(rdg, 1, 1);
  check_set(result, {{1, 1, 1, 20, 100}, {2, 1, 1, 16, 60}, {3, 0, 0, 5, 30}});
  CHECK_EQ(result.plan->critical_path_ns, 120);  // message of 40 at 20
}

TEST_CASE("plan: a fixed point that extends what was scanned already") {
  Rdg rdg = graph(3, 1);
  add(rdg, {1, 5}, 50, {2, 2}, 20);
  add(rdg, {1, 8}, 80, {3, 7}, 70);
  add(rdg, {3, 6}, 60, {2, 6}, 65);
  add(rdg, {2, 4}, 40, {3, 1}, 10);
  check_set(plan(rdg, 1, 0), {{1, 0, 0, 10, 100}, {2, 0, 0, 7, 65}, {3, 0, 0, 8, 70}});
}

TEST_CASE("plan: two intervals of one unit are two executions") {
  Rdg rdg = graph(2, 3);
  add(rdg, {1, 21}, 10, {2, 5}, 50);
  add(rdg, {1, 22}, 20, {2, 15}, 50);
  add(rdg, {2, 12}, 20, {1, 13}, 30);
  const auto result = plan(rdg, 1, 2);
  check_set(result, {{1, 2, 2, 30, 100}, {1, 1, 1, 14, 30}, {2, 0, 0, 6, 50}, {2, 1, 1, 16, 50}});
  CHECK_EQ(result.plan->critical_path_ns, 140);  // 30, to 60 in 2:1, 80 left
}

TEST_CASE("plan: intervals wait for each other in turn without being a cycle") {
  Rdg rdg = graph(2, 1);
  add(rdg, {1, 2}, 20, {2, 1}, 25);
  add(rdg, {1, 6}, 60, {2, 5}, 50);
  add(rdg, {2, 4}, 40, {1, 3}, 30);
  const auto result = plan(rdg, 1, 0);
  check_set(result, {{1, 0, 0, 10, 100}, {2, 0, 0, 6, 50}});
  CHECK_EQ(result.plan->critical_path_ns, 105);
}

TEST_CASE("plan: intervals that are re-driven together share one replay set") {
  Rdg rdg = graph(4, 2);
  add(rdg, {1, 2}, 20, {3, 4}, 45);
  add(rdg, {2, 6}, 60, {3, 7}, 75);
  add(rdg, {2, 8}, 80, {1, 1}, 10);
  add(rdg, {1, 5}, 50, {4, 5}, 99);  // behind where 1 is to stop
  const PlanRequest requests[] = {{2, 0, {}}, {1, 0, 5}};
  const auto result = plan_together(rdg, requests);
  check_set(result, {{2, 0, 0, 10, 100}, {1, 0, 0, 5, 40}, {3, 0, 0, 8, 75}});
  CHECK_EQ(result.plan->critical_path_ns, 115);  // message of 75 at 60
}

TEST_CASE("plan: an event that receives and sends needs what it receives") {
  Rdg rdg = graph(3, 1);
  add(rdg, {1, 5}, 50, {2, 5}, 50);
  add(rdg, {2, 5}, 50, {3, 9}, 90);
  const auto result = plan(rdg, 1, 0);
  check_set(result, {{1, 0, 0, 10, 100}, {2, 0, 0, 6, 50}, {3, 0, 0, 10, 90}});
  CHECK_EQ(result.plan->critical_path_ns, 140);
}

TEST_CASE("plan: an interval that cannot be started from is joined to the one before, with its dependences") {
  Rdg rdg = graph(3, 4);
  rdg.units[2][1].startable = rdg.units[2][2].startable = false;
  add(rdg, {1, 5}, 50, {2, 24}, 45);
  add(rdg, {2, 3}, 30, {3, 1}, 15);
  add(rdg, {2, 13}, 30, {3, 12}, 80);
  add(rdg, {2, 27}, 60, {3, 22}, 20);  // after the requisite event
  const auto result = plan(rdg, 1, 0);
  check_set(result, {{1, 0, 0, 10, 100}, {2, 0, 2, 25, 245}, {3, 0, 0, 2, 15}, {3, 1, 1, 13, 80}});
  CHECK_EQ(result.plan->critical_path_ns, 295);
  SUBCASE("when it is the one requested") {
    check_set(plan(rdg, 2, 1), {{2, 0, 1, 20, 200}, {3, 0, 0, 2, 15}, {3, 1, 1, 13, 80}});
    check_set(plan(rdg, 2, 1, 10), {{2, 0, 1, 10, 100}, {3, 0, 0, 2, 15}});
  }
  SUBCASE("needed in both, it is one execution up to the later event") {
    add(rdg, {1, 6}, 60, {2, 7}, 70);
    check_set(plan(rdg, 1, 0), {{1, 0, 0, 10, 100}, {2, 0, 2, 25, 245}, {3, 0, 0, 2, 15}, {3, 1, 1, 13, 80}});
  }
  SUBCASE("the next one that can be started from does not need it") {
    check_set(plan(rdg, 2, 3), {{2, 3, 3, 40, 100}});
  }
}

TEST_CASE("plan: a birth needs the parent's fork, and the parent's own birth") {
  Rdg rdg = graph(3, 2);
  rdg.units[2][0].birth = EventRef{1, 14};
  rdg.units[3][0].birth = EventRef{2, 5};
  SUBCASE("its time known from a dependence") {
    add(rdg, {2, 0}, 0, {1, 14}, 45);
    add(rdg, {3, 0}, 0, {2, 5}, 60);
    const auto result = plan(rdg, 3, 0);
    check_set(result, {{3, 0, 0, 10, 100}, {1, 1, 1, 15, 45}, {2, 0, 0, 6, 60}});
    CHECK_EQ(result.plan->critical_path_ns, 205);
  }
  SUBCASE("its time interpolated") {
    const auto result = plan(rdg, 3, 0);
    check_set(result, {{3, 0, 0, 10, 100}, {1, 1, 1, 15, 40}, {2, 0, 0, 6, 50}});
    CHECK_EQ(result.plan->critical_path_ns, 190);
  }
  SUBCASE("even of a child that executes nothing") {
    check_set(plan(rdg, 3, 0, 0), {{3, 0, 0, 0, 0}, {1, 1, 1, 15, 40}, {2, 0, 0, 6, 50}});
  }
  SUBCASE("not for its second interval") { check_set(plan(rdg, 3, 1), {{3, 1, 1, 20, 100}}); }
  SUBCASE("but for one joined to its first") {
    rdg.units[3][1].startable = false;
    check_set(plan(rdg, 3, 1), {{3, 0, 1, 20, 200}, {1, 1, 1, 15, 40}, {2, 0, 0, 6, 50}});
  }
}

TEST_CASE("plan: only up to `until`, its time interpolated between known receives") {
  Rdg rdg = graph(2, 1);
  add(rdg, {1, 2}, 40, {2, 1}, 10);
  add(rdg, {1, 6}, 60, {2, 8}, 80);
  check_set(plan(rdg, 1, 0, 0), {{1, 0, 0, 0, 0}});
  check_set(plan(rdg, 1, 0, 2), {{1, 0, 0, 2, 20}});
  check_set(plan(rdg, 1, 0, 3), {{1, 0, 0, 3, 40}, {2, 0, 0, 2, 10}});
  check_set(plan(rdg, 1, 0, 5), {{1, 0, 0, 5, 50}, {2, 0, 0, 2, 10}});
  check_set(plan(rdg, 1, 0, 10), {{1, 0, 0, 10, 100}, {2, 0, 0, 9, 80}});
  CHECK_EQ(plan(rdg, 1, 0, 7).plan->critical_path_ns, 80);
  check_error(plan(rdg, 1, 0, 11), {1, 11}, {1, 11});
}

TEST_CASE("plan: an event whose time is not known is no earlier than the receives before it") {
  Rdg rdg = graph(3, 1);
  add(rdg, {1, 5}, 50, {2, 8}, 0);
  add(rdg, {1, 6}, 0, {3, 1}, 10);
  add(rdg, {2, 4}, 40, {3, 6}, 65);
  const auto result = plan(rdg, 1, 0, 7);
  check_set(result, {{1, 0, 0, 7, 50}, {2, 0, 0, 9, 40}, {3, 0, 0, 7, 65}});
  CHECK_EQ(result.plan->critical_path_ns, 65);
}

TEST_CASE("plan: says what is missing") {
  Rdg rdg = graph(2, 2);
  CHECK(plan(rdg, 3, 0).error);
  CHECK(plan(rdg, 1, 2).error);
  SUBCASE("a sender's unit") {
    add(rdg, {1, 5}, 50, {9, 5}, 50);
    check_error(plan(rdg, 1, 0), {9, 5}, {1, 5});
    check_set(plan(rdg, 1, 0, 5), {{1, 0, 0, 5, 40}});  // not needed yet
  }
  SUBCASE("a sender's event") {
    add(rdg, {1, 5}, 50, {2, 20}, 50);
    check_error(plan(rdg, 1, 0), {2, 20}, {1, 5});
  }
  SUBCASE("a fork") {
    rdg.units[1][0].birth = EventRef{7, 3};
    check_error(plan(rdg, 1, 0), {7, 3}, {1, 0});
  }
  SUBCASE("a checkpoint to start from") {
    rdg.units[2][0].startable = false;
    add(rdg, {1, 5}, 50, {2, 2}, 50);
    check_error(plan(rdg, 1, 0), {2, 2}, {1, 5});
    check_error(plan(rdg, 2, 0), {2, 0}, {2, 0});
  }
}

TEST_CASE("plan: an event that depends on itself is an error, not a hang") {
  Rdg rdg = graph(2, 1);
  SUBCASE("through another unit") {
    add(rdg, {1, 2}, 20, {2, 6}, 60);
    add(rdg, {2, 4}, 40, {1, 3}, 30);
    CHECK(plan(rdg, 1, 0).error);
    CHECK(plan(rdg, 2, 0).error);
  }
  SUBCASE("directly") {
    add(rdg, {1, 2}, 20, {1, 2}, 20);
    check_error(plan(rdg, 1, 0), {1, 2}, {1, 2});
  }
  SUBCASE("a message to itself is none") {
    add(rdg, {1, 4}, 40, {1, 2}, 20);
    check_set(plan(rdg, 1, 0), {{1, 0, 0, 10, 100}});
  }
  SUBCASE("births") {
    rdg.units[1][0].birth = EventRef{2, 1};
    rdg.units[2][0].birth = EventRef{1, 1};
    CHECK(plan(rdg, 1, 0).error);
  }
}

TEST_CASE("plan: damaged times and orders are survived") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    Rdg rdg;
    const auto any = [&](uint64_t limit) { return random() % 16 == 0 ? random() : random() % limit; };
    for (UnitId unit = 1; unit <= 4; ++unit) {
      for (int i = 0; i < 4; ++i) rdg.units[unit].push_back({any(40), any(40), any(100), random() % 4 != 0, {}});
      if (random() % 4 == 0) rdg.units[unit][0].birth = EventRef{static_cast<UnitId>(any(5)), any(40)};
      for (int i = 0; i < 8; ++i) add(rdg, {unit, any(40)}, any(100), {static_cast<UnitId>(any(5)), any(40)}, any(100));
    }
    for (UnitId unit = 1; unit <= 4; ++unit) {
      for (IntervalIndex i = 0; i < 4; ++i) {
        const auto result = plan(rdg, unit, i);
        CHECK(result.plan.has_value() != result.error.has_value());
      }
    }
  }
}

TEST_CASE("a plan on a million messages takes well under a second") {
  constexpr UnitId kUnits = 16;
  constexpr EventIndex kEvents = 62'500, kPerInterval = 625;
  Rdg rdg;
  for (UnitId unit = 1; unit <= kUnits; ++unit) {
    for (EventIndex first = 0; first < kEvents; first += kPerInterval) {
      rdg.units[unit].push_back(
          {first, first + kPerInterval, 10 * kPerInterval, first % (7 * kPerInterval) != kPerInterval, {}});
    }
    for (EventIndex event = 1; event < kEvents; ++event) {
      add(rdg, {unit, event}, event % kPerInterval * 10, {unit % kUnits + 1, event - 1},
          (event - 1) % kPerInterval * 10 + 5);
    }
  }
  const double start = cpu_seconds();
  const auto result = plan(rdg, 1, kEvents / kPerInterval - 1);
  const double seconds = cpu_seconds() - start;
  REQUIRE(result.plan);
  CHECK_GT(result.plan->replay_set.size(), 10 * kUnits);
  MESSAGE("planned ", result.plan->replay_set.size(), " intervals in ", seconds, " s");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  CHECK_LT(seconds, 10.0);
#else
  CHECK_LT(seconds, 1.0);
#endif
}

}  // namespace redrive::plan_test
