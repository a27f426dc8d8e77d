// Distributed breakpoints: examples by hand, and random executions compared with the transitive closure of
// happened-before.
#include "supervisor/plan/breakpoint.h"

#include <ctime>
#include <random>
#include <set>

#include "tests/unit/unit_test.h"

namespace redrive::breakpoint_test {

namespace {

using Places = std::map<UnitId, EventIndex>;

Places places(const Breakpoint& breakpoint) {
  Places out;
  for (const auto& [unit, place] : breakpoint.units) out[unit] = place.event;
  return out;
}

Places places(const Result<Breakpoint>& breakpoint) {
  REQUIRE_MESSAGE(breakpoint, (breakpoint ? "" : breakpoint.error().message));
  return places(*breakpoint);
}

void check_refused(const Result<Breakpoint>& breakpoint, const std::string& words) {
  REQUIRE_FALSE(breakpoint);
  CHECK_MESSAGE(breakpoint.error().message.find(words) != std::string::npos, breakpoint.error().message);
}

// Units with ten events each.
Communication execution(UnitId units) {
  Communication out;
  for (UnitId unit = 1; unit <= units; ++unit) out.units[unit].events = 10;
  return out;
}

void message(Communication& execution, EventRef from, EventRef to) {
  execution.units[to.unit].needs.push_back({to.event, from, false});
}

// Up to six units, some of them forked; events happen one after the other.
struct Random {
  Communication execution;
  std::vector<EventRef> order;

  explicit Random(uint64_t seed) : engine(seed) {
    execution.units[1];
    const size_t length = 5 + below(60);
    const UnitId most = 1 + static_cast<UnitId>(below(6));
    while (order.size() < length) {
      const UnitId id = 1 + static_cast<UnitId>(below(execution.units.size()));
      Communication::Unit& unit = execution.units[id];
      const EventRef at{id, unit.events++};
      if (below(3) == 0) receive(unit, at);
      order.push_back(at);
      if (execution.units.size() < most && below(6) == 0) {
        execution.units[static_cast<UnitId>(execution.units.size() + 1)].birth = at;
      }
    }
  }
  void receive(Communication::Unit& unit, EventRef at) {
    for (uint64_t parts = 1 + below(2); parts > 0 && !order.empty(); --parts) {
      const EventRef sender = order[below(order.size())];
      if (sender.unit != at.unit) unit.needs.push_back({at.event, sender, false});
    }
  }
  uint64_t below(uint64_t limit) { return engine() % limit; }
  std::mt19937_64 engine;
};

// For each event, everything that happened before it.
struct Closure {
  std::map<EventRef, std::set<EventRef>> past;

  explicit Closure(const Random& random) {
    for (const EventRef& at : random.order) {
      auto& mine = past[at];
      const Communication::Unit& unit = random.execution.units.at(at.unit);
      if (at.event > 0) add(mine, {at.unit, at.event - 1});
      if (at.event == 0 && unit.birth) add(mine, *unit.birth);
      for (const auto& need : unit.needs) {
        if (need.event == at.event) add(mine, need.sender);
      }
    }
  }
  void add(std::set<EventRef>& to, EventRef event) {
    to.insert(event);
    to.insert(past.at(event).begin(), past.at(event).end());
  }
};

// What is done when the listed units stand before their events, found by the definition, event by event. Nullopt if
// some of it would have to be both done and not done.
std::optional<Places> by_closure(const Random& random, const Closure& closure, const std::vector<EventRef>& listed) {
  const auto is_ahead = [&](EventRef event) {
    return std::any_of(listed.begin(), listed.end(),
                       [&](EventRef at) { return at.unit == event.unit && event.event >= at.event; });
  };
  std::set<EventRef> done;
  const auto add = [&](EventRef event) {
    std::set<EventRef> all = closure.past.at(event);
    all.insert(event);
    if (std::any_of(all.begin(), all.end(), is_ahead)) return false;
    done.insert(all.begin(), all.end());
    return true;
  };
  for (const EventRef& at : listed) {
    if (at.event > 0 && !add({at.unit, at.event - 1})) return std::nullopt;
  }
  for (const EventRef& at : listed) {
    const Communication::Unit& unit = random.execution.units.at(at.unit);
    if (at.event == 0 && unit.birth) add(*unit.birth);
    for (const auto& need : unit.needs) {
      if (need.event == at.event) add(need.sender);
    }
  }
  Places out;
  for (const auto& [id, unit] : random.execution.units) out[id] = 0;
  for (const EventRef& event : done) out[event.unit] = std::max(out[event.unit], event.event + 1);
  return out;
}

// No unit has done anything that depends on something another unit has not done.
bool is_consistent(const Closure& closure, const Places& at) {
  for (const auto& [event, past] : closure.past) {
    if (event.event >= at.at(event.unit)) continue;
    for (const EventRef& before : past) {
      if (before.event >= at.at(before.unit)) return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE(
    "breakpoint: other units stand after what happened before the event; those without such events are not started") {
  Communication e = execution(4);
  message(e, {1, 2}, {2, 3});
  message(e, {2, 5}, {3, 4});
  message(e, {1, 8}, {2, 8});  // not in the past of 3@5
  message(e, {4, 1}, {1, 9});
  const auto found = causal_breakpoint(e, {{3, 5}});
  CHECK(places(found) == Places{{1, 3}, {2, 6}, {3, 5}, {4, 0}});
  CHECK(found->units.at(1).started);
  CHECK_FALSE(found->units.at(4).started);
}

TEST_CASE("breakpoint: what the event itself receives has been sent") {
  Communication e = execution(2);
  message(e, {1, 2}, {2, 3});
  CHECK(places(causal_breakpoint(e, {{2, 3}})) == Places{{1, 3}, {2, 3}});
  CHECK(places(causal_breakpoint(e, {{2, 2}})) == Places{{1, 0}, {2, 2}});
  // If the sender must stand before that event too, neither has happened, and both may be inspected.
  CHECK(places(causal_breakpoint(e, {{1, 2}, {2, 3}})) == Places{{1, 2}, {2, 3}});
}

TEST_CASE("breakpoint: a unit stands at its beginning once it is born") {
  Communication e = execution(3);
  e.units[2].birth = EventRef{1, 4};
  e.units[3].birth = EventRef{2, 0};
  const auto first = causal_breakpoint(e, {{2, 0}});
  CHECK(places(first) == Places{{1, 5}, {2, 0}, {3, 0}});
  CHECK(first->units.at(2).started);
  CHECK(places(causal_breakpoint(e, {{3, 1}})) == Places{{1, 5}, {2, 1}, {3, 1}});
  const auto unborn = causal_breakpoint(e, {{1, 4}, {2, 0}});
  CHECK(places(unborn) == Places{{1, 4}, {2, 0}, {3, 0}});
  CHECK_FALSE(unborn->units.at(2).started);
}

TEST_CASE("breakpoint: mistakes are named") {
  Communication e = execution(3);
  message(e, {1, 4}, {2, 3});
  message(e, {2, 6}, {3, 2});
  check_refused(causal_breakpoint(e, {{7, 1}}), "there is no unit 7");
  check_refused(causal_breakpoint(e, {{1, 10}}), "unit 1 has no event 10: it has 0 to 9");
  check_refused(causal_breakpoint(e, {{1, 1}, {1, 2}}), "unit 1 cannot stand before two events");
  check_refused(causal_breakpoint(e, {{3, 3}, {1, 4}}), "1@4 happened before 3@3: no breakpoint has both");
  check_refused(causal_breakpoint(e, {{1, 2}, {3, 3}}), "1@2 happened before 3@3 (as did event 4 of unit 1)");
  const auto from = causal_breakpoint(e, {{3, 3}});
  REQUIRE(from);
  check_refused(later_breakpoint(e, *from, {{2, 6}}), "unit 2 already stands before event 7");
  CHECK(places(later_breakpoint(e, *from, {{1, 8}})) == Places{{1, 8}, {2, 7}, {3, 3}});
}

TEST_CASE("breakpoint: an event that needs a later one of its unit is damage") {
  Communication e = execution(2);
  message(e, {1, 5}, {2, 1});
  message(e, {2, 2}, {1, 3});
  const auto found = causal_breakpoint(e, {{1, 4}});
  REQUIRE_FALSE(found);
  CHECK(found.error().status == Status::damaged);
}

TEST_CASE("breakpoint: random executions, against the transitive closure") {
  size_t refused = 0, accepted = 0;
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Closure closure(random);
    std::map<UnitId, EventRef> chosen;
    for (uint64_t count = 1 + random.below(3); count > 0; --count) {
      const EventRef at = random.order[random.below(random.order.size())];
      chosen[at.unit] = at;
    }
    std::vector<EventRef> listed;
    for (const auto& [unit, at] : chosen) listed.push_back(at);
    const auto expected = by_closure(random, closure, listed);
    const auto found = causal_breakpoint(random.execution, listed);
    REQUIRE_EQ(found.operator bool(), expected.has_value());
    if (!found) {
      ++refused;
      continue;
    }
    ++accepted;
    REQUIRE(places(found) == *expected);
    REQUIRE(is_consistent(closure, places(found)));
    if (listed.size() == 1) {
      Places past;
      for (const auto& [unit, its] : random.execution.units) past[unit] = unit == listed[0].unit ? listed[0].event : 0;
      for (const EventRef& event : closure.past.at(listed[0])) {
        past[event.unit] = std::max(past[event.unit], event.event + 1);
      }
      REQUIRE(places(found) == past);
    }
    const EventRef further = random.order[random.below(random.order.size())];
    if (const auto later = later_breakpoint(random.execution, *found, {further})) {
      REQUIRE(is_consistent(closure, places(later)));
      REQUIRE_EQ(places(later).at(further.unit), further.event);
    } else {
      REQUIRE_LT(further.event, places(found).at(further.unit));
    }
  }
  CHECK_GT(refused, 300);
  CHECK_GT(accepted, 1000);
}

TEST_CASE("breakpoint: a million messages take a second at most") {
  constexpr uint64_t kMessages = 1'000'000;
  constexpr UnitId kUnits = 16;
  Communication e;
  std::mt19937_64 engine(1);
  for (UnitId unit = 1; unit <= kUnits; ++unit) e.units[unit].events = 1;
  for (uint64_t i = 0; i < kMessages; ++i) {
    const UnitId from = 1 + static_cast<UnitId>(engine() % kUnits), to = from % kUnits + 1;
    message(e, {from, e.units[from].events - 1}, {to, e.units[to].events});
    ++e.units[to].events;
  }
  const std::clock_t before = std::clock();
  const auto found = causal_breakpoint(e, {{1, e.units[1].events - 1}});
  REQUIRE(found);
  CHECK_GT(found->units.at(2).event, kMessages / kUnits / 2);
  CHECK_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 1.0);
}

}  // namespace redrive::breakpoint_test
