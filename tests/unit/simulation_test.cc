// Policies and the planner on random executions, judged by a checker that shares no code and no ideas with them: it
// knows every event, and follows dependences event by event. A failure prints its seed; REDRIVE_SEED=N runs only that
// execution.
#include "tests/unit/simulation.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>

#include "tests/unit/unit_test.h"

namespace redrive::simulation_test {
using namespace redrive::simulation;

namespace {

// The planner's input, as supervisor/plan/graph.cc makes it from a trace.
Rdg graph_of(const World& world) {
  Rdg rdg;
  for (const auto& [unit, intervals] : world.units) {
    for (const auto& i : intervals) {
      rdg.units[unit].push_back({i.first_event, i.end_event, i.cpu_ns, i.startable, i.birth});
      if (i.birth && world.forks_listed)
        rdg.unlogged[unit].push_back({{unit, i.first_event}, *i.birth, 0, i.birth_at_ns});
    }
  }
  for (const auto& event : world.events) {
    for (const auto& sender : event.unlogged) {
      rdg.unlogged[event.unit].push_back({{event.unit, event.event}, sender, event.at_ns, world.at_ns.at(sender)});
    }
  }
  return rdg;
}

using PlanFunction = std::function<PlanResult(const Rdg&, UnitId, IntervalIndex, std::optional<EventIndex>)>;

Complaint check_plan(const EventGraph& events, const PlanResult& result, UnitId unit, IntervalIndex interval,
                     EventIndex until) {
  if (!result.plan) return at(unit, interval, "no plan");
  const auto expected = events.closure(events.run_of(unit, interval), until);
  const auto& set = result.plan->replay_set;
  if (set.empty() || set[0].unit != unit || set[0].interval != interval)
    return at(unit, interval, "is not first in its replay set");
  if (set.size() != expected.size()) {
    return at(unit, interval,
              "replay set of " + std::to_string(set.size()) + ", should be " + std::to_string(expected.size()));
  }
  uint64_t work_ns = 0;
  for (const auto& planned : set) {
    const auto found = expected.find({planned.unit, planned.start});
    if (found == expected.end()) return at(planned.unit, planned.start, "is not needed");
    if (found->second != planned.requisite_event) {
      return at(
          planned.unit, planned.start,
          "executed up to " + std::to_string(planned.requisite_event) + ", should be " + std::to_string(found->second));
    }
    work_ns += planned.cpu_ns;
  }
  if (work_ns != result.plan->work_ns) return at(unit, interval, "work is not the sum of CPU times");
  return std::nullopt;
}

// For a plan that ends with its interval: checks CPU times and the critical path, if the graph knows the times of all
// events.
Complaint check_times(const World& world, const EventGraph& events, const std::vector<uint64_t>& paths,
                      const Plan& plan) {
  const uint64_t critical_path_ns = events.critical_path(paths, plan.unit, plan.interval);
  if (plan.critical_path_ns != critical_path_ns) {
    return at(
        plan.unit, plan.interval,
        "critical path " + std::to_string(plan.critical_path_ns) + ", should be " + std::to_string(critical_path_ns));
  }
  for (const auto& planned : plan.replay_set) {
    const bool requested = &planned == &plan.replay_set[0];
    const uint64_t cpu_ns =
        requested ? events.time_in_run(plan.unit, plan.interval, world.units.at(plan.unit)[plan.interval].cpu_ns)
                  : events.time_of({planned.unit, planned.requisite_event - 1});
    if (planned.cpu_ns != cpu_ns) return at(planned.unit, planned.start, "wrong CPU time");
  }
  return std::nullopt;
}

Complaint check_plans(const World& world, const PlanFunction& planner) {
  const EventGraph events(world);
  const auto paths = events.paths(world.events.size());
  const Rdg rdg = graph_of(world);
  for (const auto& [unit, intervals] : world.units) {
    for (IntervalIndex i = 0; i < intervals.size(); ++i) {
      const auto whole = planner(rdg, unit, i, std::nullopt);
      if (auto wrong = check_plan(events, whole, unit, i, intervals[i].end_event)) return wrong;
      if (world.forks_listed) {
        if (auto wrong = check_times(world, events, paths, *whole.plan)) return wrong;
      }
      const EventIndex middle = (intervals[i].first_event + intervals[i].end_event) / 2;
      if (auto wrong = check_plan(events, planner(rdg, unit, i, middle), unit, i, middle)) return wrong;
    }
  }
  return std::nullopt;
}

// Algorithm 1 keeps exactly the messages whose longest path, with what remains of T, exceeds C; keeping any other one
// is waste.
Complaint check_decisions(const World& world) {
  const EventGraph events(world);
  const auto paths = events.paths(world.events.size());
  for (const auto& decided : world.decisions) {
    uint64_t path_ns = 0;
    for (const auto& sender : decided.senders) path_ns = std::max(path_ns, paths[events.position(sender)]);
    const uint64_t period_ns = world.limits.checkpoint_period_ns;
    const uint64_t remaining_ns = period_ns - std::min(period_ns, decided.at_ns);
    const bool keep = path_ns + remaining_ns > world.limits.critical_path_ns;
    if (keep != decided.kept)
      return "a receive of unit " + std::to_string(decided.unit) + (keep ? " was not kept" : " was kept in vain");
  }
  return std::nullopt;
}

Complaint check_alone(const World& world) {
  const Rdg rdg = graph_of(world);
  for (const auto& [unit, intervals] : world.units) {
    for (IntervalIndex i = 0; i < intervals.size(); ++i) {
      const auto result = plan(rdg, unit, i);
      if (!result.plan || result.plan->replay_set.size() != 1) return at(unit, i, "does not replay alone");
    }
  }
  if (world.kept() != world.decisions.size()) return "something was not kept";
  return std::nullopt;
}

World simulate(uint64_t seed, const std::string& policy, bool images_fail = false, bool late = false) {
  Simulation simulation(seed, images_fail, late);
  return simulation.run(*make_policy(policy, simulation.limits()).value());
}

void expect_well(uint64_t seed, const Complaint& complaint) { CHECK_MESSAGE(!complaint, again(seed, complaint)); }

// Algorithm 1 with one fault.
enum class Fault { none, no_remaining, min_for_max, joins_shortest_way, forgets_computing, never_resets, off_by_one };

class Faulty : public Policy {
 public:
  Faulty(PolicyParameters limits, Fault fault) : limits_(limits), fault_(fault) {}
  void on_checkpoint(uint32_t unit, uint64_t) override {
    Unit& u = units_[unit];
    u.at_ns = 0;
    if (fault_ != Fault::never_resets) u.path_ns = 0;
  }
  Tag on_send(uint32_t unit, uint64_t at_ns, uint64_t) override { return Tag{advance(unit, at_ns).path_ns}; }
  Decision on_receive(uint32_t unit, uint64_t at_ns, const Tag& tag, uint64_t) override {
    Unit& u = advance(unit, at_ns);
    const uint64_t slack_ns = fault_ == Fault::off_by_one ? 1 : 0;
    const uint64_t remaining_ns = fault_ == Fault::no_remaining ? 0 : limits_.checkpoint_period_ns - at_ns;
    if (tag.critical_path_ns + remaining_ns > limits_.critical_path_ns + slack_ns) return {Keep::keep};
    if (fault_ == Fault::min_for_max)
      u.path_ns = std::min(u.path_ns, tag.critical_path_ns);
    else if (fault_ != Fault::joins_shortest_way)
      u.path_ns = std::max(u.path_ns, tag.critical_path_ns);
    return {Keep::drop};
  }

 private:
  struct Unit {
    uint64_t at_ns = 0, path_ns = 0;
  };
  Unit& advance(uint32_t unit, uint64_t at_ns) {
    Unit& u = units_[unit];
    if (fault_ != Fault::forgets_computing) u.path_ns += at_ns - u.at_ns;
    u.at_ns = at_ns;
    return u;
  }
  const PolicyParameters limits_;
  const Fault fault_;
  std::map<uint32_t, Unit> units_;
};

World simulate_fault(uint64_t seed, Fault fault) {
  Simulation simulation(seed, false);
  Faulty policy(simulation.limits(), fault);
  return simulation.run(policy);
}

}  // namespace

TEST_CASE("simulation: critical-path keeps what it must, and nothing else; no interval's path exceeds C") {
  size_t kept = 0, decided = 0, at_limit = 0;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    const World world = simulate(seed, "critical-path");
    expect_well(seed, check_bound(world));
    expect_well(seed, check_decisions(world));
    expect_well(seed, check_plans(world, plan));
    kept += world.kept();
    decided += world.decisions.size();
    at_limit += world.kept() > 0;
  });
  if (std::getenv("REDRIVE_SEED")) return;
  CHECK_GT(kept, decided / 100);  // otherwise the simulation is too easy
  CHECK_LT(kept, decided / 2);
  CHECK_GT(at_limit, kSeeds / 4);
}

TEST_CASE("simulation: a late checkpoint lengthens its own interval's path by its lateness at most") {
  size_t late = 0;
  for_each_seed(kSeeds, [&](uint64_t seed) {
    const World world = simulate(seed, "critical-path", false, true);
    expect_well(seed, check_bound(world));
    expect_well(seed, check_decisions(world));
    expect_well(seed, check_plans(world, plan));
    for (const auto& [unit, intervals] : world.units) {
      for (const auto& i : intervals) late += i.cpu_ns > world.limits.checkpoint_period_ns;
    }
  });
  if (!std::getenv("REDRIVE_SEED")) CHECK_GT(late, kSeeds);
}

TEST_CASE("simulation: all makes every interval replay alone") {
  for_each_seed(kSeeds, [](uint64_t seed) { expect_well(seed, check_alone(simulate(seed, "all"))); });
}

TEST_CASE("simulation: none keeps nothing, and the plan is the whole closure") {
  for_each_seed(kSeeds, [](uint64_t seed) {
    const World world = simulate(seed, "none");
    CHECK_EQ(world.kept(), 0);
    expect_well(seed, check_plans(world, plan));
  });
}

TEST_CASE("simulation: plans are right where checkpoints cannot be used") {
  for_each_seed(kSeeds, [](uint64_t seed) {
    for (const char* policy : {"critical-path", "none"})
      expect_well(seed, check_plans(simulate(seed, policy, true), plan));
  });
}

TEST_CASE("simulation: the checker finds faulty policies") {
  CHECK_FALSE(complains([](uint64_t seed) { return check_decisions(simulate_fault(seed, Fault::none)); }));
  for (const Fault fault :
       {Fault::no_remaining, Fault::min_for_max, Fault::joins_shortest_way, Fault::forgets_computing}) {
    CAPTURE(static_cast<int>(fault));
    CHECK(complains([fault](uint64_t seed) { return check_bound(simulate_fault(seed, fault)); }));
  }
  for (const Fault fault : {Fault::never_resets, Fault::off_by_one}) {  // within C, or rarely beyond it
    CAPTURE(static_cast<int>(fault));
    CHECK(complains([fault](uint64_t seed) { return check_decisions(simulate_fault(seed, fault)); }));
  }
}

TEST_CASE("simulation: the checker finds faulty plans") {
  const std::vector<std::function<void(Plan&)>> faults{
      [](Plan& p) {
        if (p.replay_set.size() > 1) p.replay_set.pop_back();
      },
      [](Plan& p) { p.replay_set.push_back(p.replay_set.back()); },
      [](Plan& p) { ++p.replay_set.back().requisite_event; },
      [](Plan& p) {
        if (p.replay_set.size() > 1) --p.replay_set.back().requisite_event;
      },
      [](Plan& p) {
        if (p.replay_set.back().start > 0) --p.replay_set.back().start;
      },
      [](Plan& p) { ++p.critical_path_ns; },
      [](Plan& p) { p.critical_path_ns = p.replay_set[0].cpu_ns; },
      [](Plan& p) { ++p.work_ns; },
      [](Plan& p) { ++p.work_ns, ++p.replay_set.back().cpu_ns; },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    CAPTURE(i);
    const PlanFunction planner = [&](const Rdg& rdg, UnitId unit, IntervalIndex interval,
                                     std::optional<EventIndex> until) {
      PlanResult result = plan(rdg, unit, interval, until);
      if (result.plan) faults[i](*result.plan);
      return result;
    };
    CHECK(complains([&](uint64_t seed) { return check_plans(simulate(seed, "none", true), planner); }));
  }
}

TEST_CASE("simulation: the checker finds a planner that forgets a dependence or a birth") {
  const PlanFunction forgets_dependence = [](const Rdg& rdg, UnitId unit, IntervalIndex interval,
                                             std::optional<EventIndex> until) {
    Rdg less = rdg;
    for (auto& [receiver, unlogged] : less.unlogged) {
      if (!unlogged.empty()) unlogged.pop_back();
    }
    return plan(less, unit, interval, until);
  };
  const PlanFunction forgets_births = [](const Rdg& rdg, UnitId unit, IntervalIndex interval,
                                         std::optional<EventIndex> until) {
    Rdg less = rdg;
    for (auto& [id, intervals] : less.units) intervals[0].birth.reset();
    return plan(less, unit, interval, until);
  };
  const PlanFunction starts_anywhere = [](const Rdg& rdg, UnitId unit, IntervalIndex interval,
                                          std::optional<EventIndex> until) {
    Rdg all = rdg;
    for (auto& [id, intervals] : all.units) {
      for (auto& i : intervals) i.startable = true;
    }
    return plan(all, unit, interval, until);
  };
  for (const auto& planner : {forgets_dependence, forgets_births, starts_anywhere}) {
    CHECK(complains([&](uint64_t seed) { return check_plans(simulate(seed, "none", true), planner); }));
  }
}

}  // namespace redrive::simulation_test
