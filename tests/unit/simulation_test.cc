// Policies and planner on random executions, judged by a checker that shares no code and no idea with them: it knows
// every event, and follows dependences event by event. A failure prints the seed; REDRIVE_SEED=N runs that one
// execution only.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <sstream>

#include "logstore/policy/policy.h"
#include "supervisor/plan.h"
#include "tests/unit/unit_test.h"

using namespace redrive;

namespace {

// What really happened. Events of all units in one list, in the order in which they happened: a topological order.
struct World {
  struct Happened {
    UnitId unit = 0;
    EventIndex event = 0;
    IntervalIndex interval = 0;
    uint64_t at_ns = 0;
    std::vector<EventRef> unlogged;  // senders of what it received and was not kept
  };
  struct Interval {
    EventIndex first_event = 0, end_event = 0;
    uint64_t cpu_ns = 0;
    bool startable = true;
    std::optional<EventRef> birth;
    uint64_t birth_at_ns = 0;
  };
  // A decision of the policy, with what it was about.
  struct Decided {
    size_t before = 0;  // events that had happened
    UnitId unit = 0;
    uint64_t at_ns = 0;
    std::vector<EventRef> senders;
    bool kept = false;
  };
  std::vector<Happened> events;
  std::map<UnitId, std::vector<Interval>> units;
  std::vector<Decided> decisions;
  std::map<EventRef, uint64_t> at_ns;  // by event
  bool forks_listed = true;            // forks are dependences of the graph too, so their times are known
  PolicyParameters limits;

  size_t kept() const {
    return static_cast<size_t>(
        std::count_if(decisions.begin(), decisions.end(), [](const Decided& d) { return d.kept; }));
  }
};

// Makes a random execution, asking the policy on line as the recorder does.
class Simulation {
 public:
  Simulation(uint64_t seed, bool images_fail, bool late = false)
      : random_(seed), images_fail_(images_fail), late_(late) {
    world_.limits.checkpoint_period_ns = 20 + below(200);
    world_.limits.critical_path_ns = world_.limits.checkpoint_period_ns * (4 + below(13)) / 4;
    world_.forks_listed = below(3) != 0;
  }

  const PolicyParameters& limits() const { return world_.limits; }

  World run(Policy& policy) {
    policy_ = &policy;
    for (uint64_t i = 2 + below(5); i > 0; --i) begin_unit();
    for (uint64_t i = 0; i < units_.size() * 2; ++i) channels_.push_back({1 + below(units_.size()), {}});
    for (uint64_t steps = 30 + below(250); steps > 0; --steps) step(1 + below(units_.size()));
    for (UnitId unit = 1; unit <= units_.size(); ++unit) end_interval(unit);
    return std::move(world_);
  }

 private:
  struct Unit {
    uint64_t at_ns = 0;
    EventIndex next_event = 0;
    uint64_t longest_ns = 0;  // of its interval
  };
  struct Message {
    EventRef sender;
    Tag tag;
  };
  struct Channel {
    uint64_t receiver;
    std::deque<Message> messages;
  };

  uint64_t below(uint64_t limit) { return random_() % limit; }
  Unit& unit_of(UnitId id) { return units_[id - 1]; }
  World::Interval& interval_of(UnitId id) { return world_.units[id].back(); }

  UnitId begin_unit() {
    units_.emplace_back();
    const auto id = static_cast<UnitId>(units_.size());
    world_.units[id].push_back({});
    policy_->on_checkpoint(id);
    limit_interval(id);
    return id;
  }

  void end_interval(UnitId id) {
    interval_of(id).end_event = unit_of(id).next_event;
    interval_of(id).cpu_ns = unit_of(id).at_ns;
  }

  void checkpoint(UnitId id) {
    end_interval(id);
    const EventIndex first = unit_of(id).next_event;
    world_.units[id].push_back({first, first, 0, !images_fail_ || below(3) != 0, std::nullopt, 0});
    unit_of(id).at_ns = 0;
    policy_->on_checkpoint(id);
    limit_interval(id);
  }

  void limit_interval(UnitId id) {
    const uint64_t period_ns = world_.limits.checkpoint_period_ns;
    unit_of(id).longest_ns = period_ns + (late_ ? below(period_ns) : 0);
  }

  // Computes for a while; checkpoints come at T at the latest, sometimes sooner, and sometimes at once again.
  void compute(UnitId id) {
    const uint64_t period_ns = world_.limits.checkpoint_period_ns;
    uint64_t more_ns = below(period_ns / (1 + below(8)) + 1);
    if (below(20) == 0) checkpoint(id);
    while (unit_of(id).at_ns + more_ns > unit_of(id).longest_ns) {
      more_ns -= unit_of(id).longest_ns - unit_of(id).at_ns;
      unit_of(id).at_ns = unit_of(id).longest_ns;
      checkpoint(id);
    }
    unit_of(id).at_ns += more_ns;
  }

  EventRef happen(UnitId id, std::vector<EventRef> unlogged) {
    Unit& unit = unit_of(id);
    const EventRef ref{id, unit.next_event++};
    world_.events.push_back(
        {id, ref.event, static_cast<IntervalIndex>(world_.units[id].size() - 1), unit.at_ns, std::move(unlogged)});
    world_.at_ns[ref] = unit.at_ns;
    return ref;
  }

  bool decide(UnitId id, const std::vector<EventRef>& senders, const Tag& tag) {
    const bool kept = policy_->on_receive(id, unit_of(id).at_ns, tag).keep == Keep::keep;
    world_.decisions.push_back({world_.events.size(), id, unit_of(id).at_ns, senders, kept});
    return kept;
  }

  // Takes bytes of up to three sends; of the last perhaps not all.
  std::vector<EventRef> take(UnitId id, Channel& channel) {
    std::vector<EventRef> senders;
    Tag tag;
    for (uint64_t sends = 1 + below(3); sends > 0 && !channel.messages.empty(); --sends) {
      const Message& message = channel.messages.front();
      senders.push_back(message.sender);
      tag = senders.size() == 1 ? message.tag : join(tag, message.tag);
      if (sends == 1 && below(4) == 0) break;
      channel.messages.pop_front();
    }
    if (decide(id, senders, tag)) senders.clear();
    return senders;
  }

  void fork(UnitId parent) {
    const Tag tag = policy_->on_send(parent, unit_of(parent).at_ns);
    const EventRef ref = happen(parent, {});
    const UnitId child = begin_unit();
    channels_.push_back({child, {}});
    if (decide(child, {ref}, tag)) return;
    interval_of(child).birth = ref;
    interval_of(child).birth_at_ns = unit_of(parent).at_ns;
  }

  void step(UnitId id) {
    compute(id);
    if (below(30) == 0 && units_.size() < 12) return fork(id);
    Channel& in = channels_[below(channels_.size())];
    Channel& out = channels_[below(channels_.size())];
    const uint64_t what = below(10);
    const bool receives = what < 5 && in.receiver == id && !in.messages.empty();
    const bool sends = what >= 4 && what < 9;  // 4: both in one event, as splice(2) does
    std::vector<EventRef> unlogged;
    if (receives) unlogged = take(id, in);
    if (!sends) return void(happen(id, std::move(unlogged)));
    const Tag tag = policy_->on_send(id, unit_of(id).at_ns);
    out.messages.push_back({happen(id, std::move(unlogged)), tag});
  }

  std::mt19937_64 random_;
  bool images_fail_;
  bool late_;  // checkpoints come up to T too late
  World world_;
  Policy* policy_ = nullptr;
  std::deque<Unit> units_;
  std::vector<Channel> channels_;
};

// The planner's input, as supervisor/graph.cc makes it from a trace.
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

// Brute force over events. Every event belongs to one run: the execution from the latest interval at or before its own
// that can be started from. Knows nothing of intervals' dependences, only of events'.
class EventGraph {
 public:
  using RunId = std::pair<UnitId, IntervalIndex>;  // unit, interval it starts from

  explicit EventGraph(const World& world) : world_(world) {
    for (size_t i = 0; i < world.events.size(); ++i) position_[{world.events[i].unit, world.events[i].event}] = i;
  }

  RunId run_of(UnitId unit, IntervalIndex interval) const {
    while (!world_.units.at(unit)[interval].startable) --interval;
    return {unit, interval};
  }
  RunId run_of(EventRef event) const { return run_of(event.unit, world_.events[position_.at(event)].interval); }
  const World::Interval& start_of(RunId run) const { return world_.units.at(run.first)[run.second]; }

  // CPU time since the run's start of a point of an interval.
  uint64_t time_in_run(UnitId unit, IntervalIndex interval, uint64_t at_ns) const {
    for (IntervalIndex i = run_of(unit, interval).second; i < interval; ++i) at_ns += world_.units.at(unit)[i].cpu_ns;
    return at_ns;
  }
  uint64_t time_of(EventRef event) const {
    return time_in_run(event.unit, world_.events[position_.at(event)].interval, world_.at_ns.at(event));
  }

  // Everything that must be executed first, one step back.
  std::vector<EventRef> before(EventRef event) const {
    std::vector<EventRef> out = world_.events[position_.at(event)].unlogged;
    const World::Interval& start = start_of(run_of(event));
    if (event.event > start.first_event) out.push_back({event.unit, event.event - 1});
    if (event.event == start.first_event && start.birth) out.push_back(*start.birth);
    return out;
  }

  // One past the last event to execute of every run, to get run `wanted` up to, not including, `until`.
  std::map<RunId, EventIndex> closure(RunId wanted, EventIndex until) const {
    std::map<RunId, EventIndex> ends{{wanted, until}};
    std::vector<bool> seen(world_.events.size());
    std::vector<EventRef> todo;
    if (start_of(wanted).birth) todo.push_back(*start_of(wanted).birth);
    if (until > start_of(wanted).first_event) todo.push_back({wanted.first, until - 1});
    while (!todo.empty()) {
      const EventRef event = todo.back();
      todo.pop_back();
      if (seen[position_.at(event)]) continue;
      seen[position_.at(event)] = true;
      EventIndex& end = ends[run_of(event)];
      end = std::max(end, event.event + 1);
      for (const EventRef& needed : before(event)) todo.push_back(needed);
    }
    return ends;
  }

  // Longest path to each of the first `count` events, in the order in which they happened.
  std::vector<uint64_t> paths(size_t count) const {
    std::vector<uint64_t> path(count);
    for (size_t i = 0; i < count; ++i) {
      const EventRef event{world_.events[i].unit, world_.events[i].event};
      const World::Interval& start = start_of(run_of(event));
      path[i] = time_of(event);
      for (const EventRef& needed : before(event)) {
        const bool same_run =
            needed.unit == event.unit && needed.event + 1 == event.event && event.event > start.first_event;
        const bool birth = event.event == start.first_event && start.birth == needed;
        uint64_t weight_ns = 0;
        if (same_run) weight_ns = time_of(event) - time_of(needed);
        if (birth) weight_ns = time_of(event);
        path[i] = std::max(path[i], path[position_.at(needed)] + weight_ns);
      }
    }
    return path;
  }

  // Longest path to the end of an interval.
  uint64_t critical_path(const std::vector<uint64_t>& path, UnitId unit, IntervalIndex interval) const {
    const World::Interval& i = world_.units.at(unit)[interval];
    const RunId run = run_of(unit, interval);
    const World::Interval& start = start_of(run);
    const uint64_t end_ns = time_in_run(unit, interval, i.cpu_ns);
    if (i.end_event == start.first_event) return end_ns + (start.birth ? path[position_.at(*start.birth)] : 0);
    const EventRef last{unit, i.end_event - 1};
    return path[position_.at(last)] + end_ns - time_of(last);
  }

  size_t position(EventRef event) const { return position_.at(event); }

 private:
  const World& world_;
  std::map<EventRef, size_t> position_;
};

// The checks: none if all is well, else what is wrong.
using Complaint = std::optional<std::string>;
using PlanFunction = std::function<PlanResult(const Rdg&, UnitId, IntervalIndex, std::optional<EventIndex>)>;

std::string at(UnitId unit, IntervalIndex interval, const std::string& what) {
  return "interval " + std::to_string(unit) + ":" + std::to_string(interval) + ": " + what;
}

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

// Of a plan that ends with its interval: CPU times and the critical path, where the graph knows the times of all
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

// critical-path's promise, as users see it. A late checkpoint costs its own interval as much, and no other.
Complaint check_bound(const World& world) {
  const EventGraph events(world);
  const auto paths = events.paths(world.events.size());
  for (const auto& [unit, intervals] : world.units) {
    for (IntervalIndex i = 0; i < intervals.size(); ++i) {
      const uint64_t path_ns = events.critical_path(paths, unit, i);
      const uint64_t late_ns = intervals[i].cpu_ns - std::min(intervals[i].cpu_ns, world.limits.checkpoint_period_ns);
      if (path_ns > world.limits.critical_path_ns + late_ns) {
        return at(unit, i, "critical path " + std::to_string(path_ns) + " exceeds C");
      }
    }
  }
  return std::nullopt;
}

// Algorithm 1 keeps exactly the messages whose longest path, with what remains of T, exceeds C: one more is waste.
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

#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kSeeds = 100;
#else
constexpr uint64_t kSeeds = 400;
#endif

void for_each_seed(const std::function<void(uint64_t)>& run) {
  if (const char* only = std::getenv("REDRIVE_SEED")) return run(std::strtoull(only, nullptr, 10));
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) run(seed);
}

World simulate(uint64_t seed, const std::string& policy, bool images_fail = false, bool late = false) {
  Simulation simulation(seed, images_fail, late);
  return simulation.run(*make_policy(policy, simulation.limits()).value());
}

void expect_well(uint64_t seed, const Complaint& complaint) {
  CHECK_MESSAGE(!complaint,
                "seed " << seed << ": " << complaint.value_or("") << " (again: REDRIVE_SEED=" << seed << ")");
}

// Algorithm 1 with one fault.
enum class Fault { none, no_remaining, min_for_max, joins_shortest_way, forgets_computing, never_resets, off_by_one };

class Faulty : public Policy {
 public:
  Faulty(PolicyParameters limits, Fault fault) : limits_(limits), fault_(fault) {}
  void on_checkpoint(uint32_t unit) override {
    Unit& u = units_[unit];
    u.at_ns = 0;
    if (fault_ != Fault::never_resets) u.path_ns = 0;
  }
  Tag on_send(uint32_t unit, uint64_t at_ns) override { return Tag{advance(unit, at_ns).path_ns}; }
  Decision on_receive(uint32_t unit, uint64_t at_ns, const Tag& tag) override {
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

// Whether `check` complains of some execution.
bool complains(const std::function<Complaint(uint64_t)>& check) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    if (check(seed)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("simulation: critical-path keeps what it must, and nothing else; no interval's path exceeds C") {
  size_t kept = 0, decided = 0, at_limit = 0;
  for_each_seed([&](uint64_t seed) {
    const World world = simulate(seed, "critical-path");
    expect_well(seed, check_bound(world));
    expect_well(seed, check_decisions(world));
    expect_well(seed, check_plans(world, plan));
    kept += world.kept();
    decided += world.decisions.size();
    at_limit += world.kept() > 0;
  });
  if (std::getenv("REDRIVE_SEED")) return;
  CHECK_GT(kept, decided / 100);  // else the simulation asks for nothing
  CHECK_LT(kept, decided / 2);
  CHECK_GT(at_limit, kSeeds / 4);
}

TEST_CASE("simulation: a late checkpoint lengthens its own interval's path by its lateness at most") {
  size_t late = 0;
  for_each_seed([&](uint64_t seed) {
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
  for_each_seed([](uint64_t seed) { expect_well(seed, check_alone(simulate(seed, "all"))); });
}

TEST_CASE("simulation: none keeps nothing, and the plan is the whole closure") {
  for_each_seed([](uint64_t seed) {
    const World world = simulate(seed, "none");
    CHECK_EQ(world.kept(), 0);
    expect_well(seed, check_plans(world, plan));
  });
}

TEST_CASE("simulation: plans are right where checkpoints cannot be used") {
  for_each_seed([](uint64_t seed) {
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
  for (const Fault fault : {Fault::never_resets, Fault::off_by_one}) {  // within C, or seldom beyond it
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
