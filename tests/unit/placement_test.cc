// Who is sent to another processor, and who is called back.
#include "supervisor/record/placement/placement.h"

#include <algorithm>

#include "tests/unit/unit_test.h"

namespace redrive::placement_test {

namespace {

constexpr uint64_t kLookNs = 10'000'000;
constexpr uint64_t kNever = 0, kOften = 1000;

// Units that use as much of a processor as they get: those on one share it evenly, each up to what it wants, and wait
// for the rest.
struct Machine {
  struct Behaviour {
    double wants;
    uint64_t sleeps;             // for each look
    double sleeps_a_cpu_ms = 0;  // in addition
  };
  Machine(unsigned others, std::vector<Behaviour> units)
      : others(others), units(std::move(units)), places(this->units.size()) {}

  size_t look() {
    std::vector<UnitUse> uses;
    for (size_t i = 0; i < units.size(); ++i) {
      const auto here = static_cast<double>(std::count_if(
          places.begin(), places.end(), [&](const Place& place) { return place.away == places[i].away; }));
      const double share = std::min(units[i].wants, (places[i].away ? others : 1) / here);
      const double cpu_ms = share * kLookNs / 1e6;
      uses.push_back({&places[i], static_cast<uint64_t>(share * kLookNs),
                      units[i].sleeps + static_cast<uint64_t>(units[i].sleeps_a_cpu_ms * cpu_ms),
                      static_cast<uint64_t>((units[i].wants - share) * kLookNs)});
    }
    Placement::decide(uses, kLookNs, others);
    return static_cast<size_t>(std::count_if(uses.begin(), uses.end(), [](const UnitUse& use) { return use.moved; }));
  }
  size_t away() const {
    return static_cast<size_t>(
        std::count_if(places.begin(), places.end(), [](const Place& place) { return place.away; }));
  }

  unsigned others;
  std::vector<Behaviour> units;
  std::vector<Place> places;
};

}  // namespace

TEST_CASE("placement: units that compute are spread over the processors, and stay there") {
  struct Case {
    unsigned others;
    size_t units, away;
  };
  for (const Case& c :
       {Case{1, 1, 0}, {1, 2, 1}, {1, 3, 1}, {1, 4, 2}, {3, 2, 1}, {3, 4, 3}, {3, 8, 6}, {15, 16, 15}}) {
    CAPTURE(c.others);
    CAPTURE(c.units);
    Machine machine(c.others, std::vector<Machine::Behaviour>(c.units, {1.0, kNever}));
    machine.look();
    CHECK_EQ(machine.away(), c.away);
    for (int i = 0; i < 10; ++i) CHECK_EQ(machine.look(), 0);
  }
}

TEST_CASE("placement: on one processor no unit moves") {
  Machine machine(0, {{1.0, kNever}, {1.0, kNever}});
  CHECK_EQ(machine.look(), 0);
}

TEST_CASE("placement: a unit that sleeps or stops often, or does next to nothing, stays at home") {
  Machine machine(3, {{1.0, kOften}, {1.0, kOften}, {0.05, kNever}, {0.05, kNever}});
  for (int i = 0; i < 10; ++i) CHECK_EQ(machine.look(), 0);
}

TEST_CASE("placement: one that computes leaves home to those that talk") {
  Machine machine(1, {{0.4, kOften}, {0.4, kOften}, {1.0, kNever}});
  machine.look();
  CHECK(machine.places[2].away);
  CHECK_EQ(machine.away(), 1);
}

TEST_CASE("placement: a unit that sleeps often is called back, and for longer each time") {
  Machine machine(1, {{1.0, kNever}, {1.0, kNever}});
  machine.look();
  const size_t restless = machine.places[0].away ? 0 : 1;
  machine.units[1 - restless].wants = 0;  // nobody else wants to leave
  std::vector<int> stays;
  for (int time = 0; time < 8; ++time) {
    REQUIRE(machine.places[restless].away);
    machine.units[restless].sleeps = kOften;
    CHECK_EQ(machine.look(), 1);
    CHECK_FALSE(machine.places[restless].away);
    machine.units[restless].sleeps = kNever;
    machine.units[1 - restless].wants = 1;
    machine.places[1 - restless].stays = 1000;
    int looks = 0;
    while (!machine.places[restless].away) machine.look(), ++looks;
    machine.units[1 - restless].wants = 0;
    stays.push_back(looks);
  }
  CHECK(std::is_sorted(stays.begin(), stays.end()));
  CHECK_GT(stays.back(), 8 * stays.front());
  CHECK_LE(stays.back(), 65);
}

TEST_CASE("placement: the stops of a program that began elsewhere do not count at first") {
  Machine machine(1, {{0.2, kOften}, {1.0, kOften}});
  machine.places[1] = {.away = true, .settles = 2};
  for (int i = 0; i < 2; ++i) CHECK_EQ(machine.look(), 0);
  CHECK_EQ(machine.look(), 1);
  CHECK_EQ(machine.away(), 0);
}

TEST_CASE("placement: an empty home takes back one of those that share the others") {
  Machine machine(1, {{1.0, kNever}, {1.0, kNever}});
  for (Place& place : machine.places) place.away = true;
  machine.look();
  CHECK_EQ(machine.away(), 1);
}

TEST_CASE("placement: on several others, units that talk and compute are spread too, and stay there") {
  for (const unsigned others : {3u, 7u, 15u}) {
    for (const size_t units : {size_t{others}, size_t{others} + 1, 2 * size_t{others}}) {
      for (const double sleeps : {2.0, 10.0}) {
        CAPTURE(others);
        CAPTURE(units);
        CAPTURE(sleeps);
        Machine machine(others, std::vector<Machine::Behaviour>(units, {1.0, kNever, sleeps}));
        for (int i = 0; i < 80; ++i) machine.look();
        for (int i = 0; i < 10; ++i) CHECK_EQ(machine.look(), 0);
        CHECK_GE(machine.away(), units * others / (others + 1) - 1);
        CHECK_LT(machine.away(), units);
      }
    }
  }
}

TEST_CASE("placement: on one other, which the recorder needs too, those that talk while alone at home stay there") {
  Machine machine(1, {{1.0, kNever, 10}, {1.0, kNever, 10}});
  for (int i = 0; i < 10; ++i) CHECK_EQ(machine.look(), 0);
}

TEST_CASE("placement: units that mostly wake each other stay at home") {
  Machine machine(15, std::vector<Machine::Behaviour>(16, {1.0, kNever, 250}));
  for (int i = 0; i < 10; ++i) CHECK_EQ(machine.look(), 0);
}

TEST_CASE("placement: units of which one can run at a time stay at home") {
  Machine machine(15, std::vector<Machine::Behaviour>(4, {0.25, kNever, 10}));
  for (int i = 0; i < 10; ++i) CHECK_EQ(machine.look(), 0);
}

TEST_CASE("placement: one that talks is called back when nobody needs home") {
  Machine machine(15, {{0.6, kNever, 10}, {0.3, kNever, 10}});
  machine.places[0].away = true;
  CHECK_EQ(machine.look(), 1);
  CHECK_EQ(machine.away(), 0);
}

}  // namespace redrive::placement_test
