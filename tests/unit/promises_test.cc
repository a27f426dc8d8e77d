// Every policy's promise, on random executions, judged by brute force over their events. REDRIVE_EXECUTIONS=N runs N
// executions (`make simulate`). A failure prints its seed; REDRIVE_SEED=S runs only that one.
#include <algorithm>
#include <iostream>
#include <queue>
#include <set>

#include "tests/unit/simulation.h"
#include "tests/unit/unit_test.h"

namespace redrive::promises_test {
using namespace redrive::simulation;

namespace {

using Limits = PolicyParameters;

// The cost of re-driving one interval: the time needed of each run, and the longest path.
struct Replay {
  std::map<EventGraph::RunId, uint64_t> cpu_ns;
  uint64_t work_ns = 0;
  uint64_t path_ns = 0;
};

Replay replay_of(const World& world, const EventGraph& events, const std::vector<uint64_t>& paths, UnitId unit,
                 IntervalIndex i) {
  Replay replay;
  const auto& interval = world.units.at(unit)[i];
  for (const auto& [run, end] : events.closure({unit, i}, interval.end_event)) {
    const bool wanted = run == EventGraph::RunId{unit, i};
    const uint64_t cpu_ns = wanted ? interval.cpu_ns : world.at_ns.at({run.first, end - 1});
    replay.cpu_ns[run] = cpu_ns;
    replay.work_ns += cpu_ns;
  }
  replay.path_ns = events.critical_path(paths, unit, i);
  return replay;
}

using CheckReplay = std::function<Complaint(const Replay&, EventGraph::RunId)>;

Complaint check_replays(const World& world, const CheckReplay& check) {
  if (world.unsettled > 0) return "receives were not settled";
  const EventGraph events(world);
  const auto paths = events.paths(world.events.size());
  for (const auto& [unit, intervals] : world.units) {
    for (IntervalIndex i = 0; i < intervals.size(); ++i) {
      if (auto wrong = check(replay_of(world, events, paths, unit, i), {unit, i})) return wrong;
    }
  }
  return std::nullopt;
}

Complaint check_multiplicity(const World& world) {
  if (auto wrong = check_bound(world)) return wrong;
  return check_replays(world, [&](const Replay& replay, EventGraph::RunId run) -> Complaint {
    std::map<UnitId, uint32_t> count;
    for (const auto& [needed, cpu_ns] : replay.cpu_ns) {
      if (++count[needed.first] > world.limits.multiplicity) return at(run.first, run.second, "more than M of a unit");
    }
    return std::nullopt;
  });
}

Complaint check_set_bound(const World& world) {
  return check_replays(world, [&](const Replay& replay, EventGraph::RunId run) -> Complaint {
    if (replay.cpu_ns.size() <= world.limits.set_bound) return std::nullopt;
    return at(run.first, run.second, "replay set of " + std::to_string(replay.cpu_ns.size()));
  });
}

Complaint check_domino(const World& world) {
  return check_replays(world, [&](const Replay& replay, EventGraph::RunId run) -> Complaint {
    const bool earlier = std::any_of(replay.cpu_ns.begin(), replay.cpu_ns.end(), [&](const auto& needed) {
      return needed.first.first == run.first && needed.first.second < run.second;
    });
    return earlier ? Complaint(at(run.first, run.second, "needs an earlier interval of its unit")) : std::nullopt;
  });
}

Complaint check_all(const World& world) {
  return check_replays(world, [&](const Replay& replay, EventGraph::RunId run) -> Complaint {
    return replay.cpu_ns.size() > 1 ? Complaint(at(run.first, run.second, "needs others")) : std::nullopt;
  });
}

// A list schedule of a replay on `cores`, which takes ready runs in random order. Returns when the wanted interval is
// done.
uint64_t schedule_ns(const World& world, const EventGraph& events, const Replay& replay, EventGraph::RunId wanted,
                     uint64_t cores, std::mt19937_64& random) {
  struct Running {
    uint64_t done_ns;
    EventGraph::RunId run;
    bool operator>(const Running& other) const { return done_ns > other.done_ns; }
  };
  const auto ends = events.closure(wanted, world.units.at(wanted.first)[wanted.second].end_event);
  std::map<EventGraph::RunId, EventIndex> next;  // the next event of each run
  std::map<EventGraph::RunId, uint64_t> reached_ns;
  std::set<EventRef> done;
  std::vector<EventGraph::RunId> ready, waiting;
  for (const auto& [run, end] : ends) {
    next[run] = events.start_of(run).first_event;
    const auto& birth = events.start_of(run).birth;
    (birth ? waiting : ready).push_back(run);
  }
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
  uint64_t now_ns = 0;
  const auto born = [&](EventGraph::RunId run) { return done.contains(*events.start_of(run).birth); };
  const auto has_messages = [&](EventGraph::RunId run) {
    const auto& unlogged = world.events[events.position({run.first, next[run]})].unlogged;
    return std::all_of(unlogged.begin(), unlogged.end(), [&](EventRef sender) { return done.contains(sender); });
  };
  // A run that has computed up to its next event passes the event if its messages are there, and is ready to continue.
  std::vector<EventGraph::RunId> at_event;
  const auto pass = [&] {
    for (bool changed = true; changed;) {
      changed = false;
      for (auto* list : {&at_event, &waiting}) {
        for (size_t i = 0; i < list->size(); ++i) {
          const EventGraph::RunId run = (*list)[i];
          if (list == &waiting ? !born(run) : !has_messages(run)) continue;
          list->erase(list->begin() + static_cast<ptrdiff_t>(i--));
          changed = true;
          if (list == &at_event) done.insert({run.first, next[run]++});
          ready.push_back(run);
        }
      }
    }
  };
  for (;;) {
    pass();
    while (running.size() < cores && !ready.empty()) {
      const size_t pick = random() % ready.size();
      const EventGraph::RunId run = ready[pick];
      ready.erase(ready.begin() + static_cast<ptrdiff_t>(pick));
      const bool last = next[run] >= ends.at(run);
      const uint64_t to_ns = last ? replay.cpu_ns.at(run) : world.at_ns.at({run.first, next[run]});
      running.push({now_ns + to_ns - reached_ns[run], run});
      reached_ns[run] = to_ns;
    }
    if (running.empty()) return now_ns;
    const auto [done_ns, run] = running.top();
    running.pop();
    now_ns = done_ns;
    if (next[run] < ends.at(run)) at_event.push_back(run);
  }
}

// What the replay of an interval may take.
using LimitNs = std::function<uint64_t(const World&, const World::Interval&)>;

Complaint check_schedules(const World& world, const LimitNs& limit_of) {
  std::mt19937_64 random(world.events.size());
  const EventGraph events(world);
  const uint64_t cores = world.limits.cores;
  return check_replays(world, [&](const Replay& replay, EventGraph::RunId run) -> Complaint {
    const uint64_t limit_ns = limit_of(world, world.units.at(run.first)[run.second]);
    if (replay.work_ns + replay.path_ns * (cores - 1) > limit_ns * cores) {
      return at(run.first, run.second, "Graham's bound exceeds C");
    }
    const uint64_t schedule = schedule_ns(world, events, replay, run, cores, random);
    if (schedule > limit_ns) return at(run.first, run.second, "a schedule takes " + std::to_string(schedule));
    if (schedule < replay.path_ns) return at(run.first, run.second, "a schedule is shorter than the critical path");
    return std::nullopt;
  });
}

Complaint check_makespan(const World& world) {
  if (auto wrong = check_bound(world)) return wrong;
  return check_schedules(world, [](const World& all, const World::Interval& interval) {
    return all.limits.critical_path_ns + interval.late_ns();
  });
}

Complaint check_deadline(const World& world) {
  return check_schedules(world, [](const World& all, const World::Interval& interval) {
    return all.limits.critical_path_ns + interval.late_ns();
  });
}

// A distributed breakpoint: for each unit, how many of its events have happened. Closed under happened-before.
using Breakpoint = std::map<UnitId, EventIndex>;

Breakpoint random_breakpoint(const World& world, const EventGraph& events, std::mt19937_64& random) {
  Breakpoint breakpoint;
  std::vector<EventRef> todo;
  for (const auto& [unit, intervals] : world.units) {
    const EventIndex count = intervals.back().end_event;
    if (count > 0 && random() % 3 != 0) todo.push_back({unit, random() % count});
  }
  while (!todo.empty()) {
    const EventRef event = todo.back();
    todo.pop_back();
    EventIndex& reached = breakpoint[event.unit];
    if (event.event < reached) continue;
    for (EventIndex e = reached; e <= event.event; ++e) {
      const auto& received = world.events[events.position({event.unit, e})].received;
      todo.insert(todo.end(), received.begin(), received.end());
    }
    const auto fork = world.forks.find(event.unit);
    if (reached == 0 && fork != world.forks.end()) todo.push_back(fork->second);
    reached = event.event + 1;
  }
  return breakpoint;
}

// The latest recovery line of a breakpoint: nothing that is executed from it depends on anything before it.
std::map<UnitId, IntervalIndex> recovery_line(const World& world, const EventGraph& events,
                                              const Breakpoint& breakpoint) {
  const auto interval_of = [&](EventRef event) { return world.events[events.position(event)].interval; };
  std::map<UnitId, IntervalIndex> line;
  std::vector<UnitId> todo;
  for (const auto& [unit, end] : breakpoint) {
    line[unit] = interval_of({unit, end - 1});
    todo.push_back(unit);
  }
  const auto need = [&](EventRef sender) {
    IntervalIndex& start = line.at(sender.unit);
    if (interval_of(sender) >= start) return;
    start = interval_of(sender);
    todo.push_back(sender.unit);
  };
  while (!todo.empty()) {
    const UnitId unit = todo.back();
    todo.pop_back();
    const auto& start = world.units.at(unit)[line.at(unit)];
    if (start.birth) need(*start.birth);
    for (EventIndex e = start.first_event; e < breakpoint.at(unit); ++e) {
      for (const auto& sender : world.events[events.position({unit, e})].unlogged) need(sender);
    }
  }
  return line;
}

// CPU time from the recovery line to an event.
uint64_t distance_ns(const World& world, const EventGraph& events, IntervalIndex start, EventRef event) {
  const auto& last = world.events[events.position(event)];
  uint64_t sum_ns = last.at_ns;
  for (IntervalIndex i = start; i < last.interval; ++i) sum_ns += world.units.at(event.unit)[i].cpu_ns;
  return sum_ns;
}

// The papers' index of each event's interval, of units that take their checkpoints independently.
std::vector<uint32_t> indexes(const World& world, const EventGraph& events) {
  struct Unit {
    IntervalIndex interval = 0;
    uint32_t index = 0, next = 0;  // the least that the next interval has
  };
  std::map<UnitId, Unit> units;
  std::vector<uint32_t> out;
  for (const auto& event : world.events) {
    const auto [place, is_new] = units.try_emplace(event.unit);
    Unit& unit = place->second;
    const auto& intervals = world.units.at(event.unit);
    const auto fork = world.forks.find(event.unit);
    if (is_new && fork != world.forks.end()) unit.next = out[events.position(fork->second)];
    if (is_new && intervals.front().forced) unit.index = unit.next;
    for (; unit.interval < event.interval; ++unit.interval) unit.index = std::max(unit.index + 1, unit.next);
    for (const auto& sender : event.received) unit.next = std::max(unit.next, out[events.position(sender)]);
    const auto& interval = intervals[event.interval];
    if (interval.forced && event.event == interval.first_event) unit.index = std::max(unit.index, unit.next);
    out.push_back(unit.index);
  }
  return out;
}

// Units whose places have the smallest index do not roll back.
Complaint check_smallest(const World& world, const EventGraph& events, const std::vector<uint32_t>& indexes,
                         const Breakpoint& breakpoint, const std::map<UnitId, IntervalIndex>& line) {
  uint32_t smallest = UINT32_MAX;
  for (const auto& [unit, end] : breakpoint) smallest = std::min(smallest, indexes[events.position({unit, end - 1})]);
  for (const auto& [unit, end] : breakpoint) {
    const size_t last = events.position({unit, end - 1});
    if (indexes[last] == smallest && world.events[last].interval != line.at(unit)) {
      return "unit " + std::to_string(unit) + " rolls back from the smallest index";
    }
  }
  return std::nullopt;
}

// How long the replay of a breakpoint of n units may take, in T.
enum class Time { two, two_with_waits, two_n, n };

Complaint check_breakpoints(const World& world, Time time) {
  if (world.unsettled > 0) return "receives were not settled";
  const EventGraph events(world);
  std::mt19937_64 random(world.events.size());
  uint64_t period_ns = world.limits.checkpoint_period_ns;
  for (const auto& [unit, intervals] : world.units) {
    for (const auto& interval : intervals) period_ns = std::max(period_ns, interval.cpu_ns);
  }
  const bool is_late = period_ns > world.limits.checkpoint_period_ns;
  const uint64_t waits_ns = time == Time::two_with_waits && is_late ? world.limits.checkpoint_period_ns / 8 : 0;
  const bool is_ros = time == Time::two_n || time == Time::n;
  const auto index_of = is_ros ? indexes(world, events) : std::vector<uint32_t>();
  for (int count = 0; count < 5; ++count) {
    const Breakpoint breakpoint = random_breakpoint(world, events, random);
    const auto line = recovery_line(world, events, breakpoint);
    if (is_ros) {
      if (auto wrong = check_smallest(world, events, index_of, breakpoint, line)) return wrong;
    }
    const uint64_t factor = is_ros ? breakpoint.size() * (time == Time::two_n ? 2 : 1) : 2;
    const uint64_t limit_ns = factor * (period_ns + waits_ns);
    std::map<EventRef, uint64_t> path;
    for (const auto& happened : world.events) {
      const EventRef event{happened.unit, happened.event};
      const auto start = line.find(event.unit);
      if (start == line.end() || event.event >= breakpoint.at(event.unit) || happened.interval < start->second)
        continue;
      const uint64_t here_ns = distance_ns(world, events, start->second, event);
      if (here_ns > 2 * period_ns) return "replay distance " + std::to_string(here_ns) + " exceeds 2T";
      const auto& first = world.units.at(event.unit)[start->second];
      uint64_t& path_ns = path[event] = here_ns;
      if (event.event > first.first_event) {
        const EventRef previous{event.unit, event.event - 1};
        path_ns = path.at(previous) + here_ns - distance_ns(world, events, start->second, previous);
      } else if (first.birth) {
        path_ns += path.at(*first.birth);
      }
      for (const auto& sender : happened.unlogged) path_ns = std::max(path_ns, path.at(sender));
      if (path_ns > limit_ns) {
        return "replay time " + std::to_string(path_ns) + " exceeds " + std::to_string(factor) + " T";
      }
    }
  }
  return std::nullopt;
}

struct Promise {
  const char* policy;
  Complaint (*check)(const World&);
};
const std::vector<Promise> kPromises{
    {"critical-path", check_bound},
    {"fewest-bytes", check_bound},
    {"critical-path-multiplicity", check_multiplicity},
    {"deadline", check_deadline},
    {"makespan", check_makespan},
    {"replay-set", check_set_bound},
    {"domino", check_domino},
    {"mrt", [](const World& world) { return check_breakpoints(world, Time::two); }},
    {"mrt-waits", [](const World& world) { return check_breakpoints(world, Time::two_with_waits); }},
    {"ros", [](const World& world) { return check_breakpoints(world, Time::two_n); }},
    {"ros-nt", [](const World& world) { return check_breakpoints(world, Time::n); }},
    {"all", check_all},
};

// A quarter of the executions each: with forced checkpoints as the policy wants them, and without; undisturbed, and
// disturbed.
Simulation simulation_of(uint64_t seed) {
  Simulation simulation(seed, false);
  if (seed % 2 == 0) simulation.force_checkpoints();
  if (seed % 4 >= 2) simulation.disturb();
  return simulation;
}

// One fault in a policy.
enum class Bug {
  none,
  drops_some,     // some of what must be kept
  forgets_chain,  // a tag does not include what the sender received
  wider_limits,   // each parameter is slightly larger than requested
  never_forces,   // a checkpoint
  settles_drop,   // everything that was to be decided later
  no_rule_3,      // ros instead of another one
  never_resets,   // the policy is not told of checkpoints
  untold_skips,   // ... of skipped ones
  never_asks,     // for an early checkpoint
  early_ends,     // the policy is told that intervals end at half of their time
};

class Buggy : public Policy {
 public:
  Buggy(const std::string& policy, Limits limits, Bug bug) : bug_(bug) {
    if (bug == Bug::wider_limits) {
      limits.critical_path_ns += limits.critical_path_ns / 8;
      ++limits.multiplicity;
      ++limits.set_bound;
      ++limits.cores;
    }
    policy_ = make_policy(bug == Bug::no_rule_3 ? "ros" : policy, limits).value();
  }

  void on_checkpoint(uint32_t unit, uint64_t ended_ns) override {
    const uint32_t count = intervals_[unit]++;
    if (bug_ != Bug::never_resets || count == 0) policy_->on_checkpoint(unit, told_ns(ended_ns));
  }
  void on_skipped(uint32_t unit, uint64_t until_ns) override {
    if (bug_ != Bug::untold_skips) policy_->on_skipped(unit, until_ns);
  }
  Tag on_send(uint32_t unit, uint64_t at_ns, uint64_t bytes) override {
    Tag tag = policy_->on_send(unit, at_ns, bytes);
    if (bug_ != Bug::forgets_chain) return tag;
    tag.critical_path_ns = at_ns;
    if (tag.needs) tag.needs = std::make_shared<Needs>(Needs{{unit, intervals_[unit] - 1, at_ns}});
    return tag;
  }
  Decision on_receive(uint32_t unit, uint64_t at_ns, const Tag& tag, uint64_t bytes) override {
    Decision decision = policy_->on_receive(unit, at_ns, tag, bytes);
    if (bug_ == Bug::drops_some && decision.keep == Keep::keep && ++kept_ % 4 == 0 &&
        !decision.force_checkpoint_first) {
      decision.keep = Keep::drop;
    }
    if (bug_ == Bug::never_forces && decision.force_checkpoint_first) return {Keep::drop};
    return decision;
  }
  bool wants_checkpoint(uint32_t unit, uint64_t at_ns) override { return policy_->wants_checkpoint(unit, at_ns); }
  uint64_t checkpoint_by_ns(uint32_t unit) const override {
    return bug_ == Bug::never_asks ? UINT64_MAX : policy_->checkpoint_by_ns(unit);
  }
  void on_kept(uint32_t unit, const Tag& tag) override { policy_->on_kept(unit, tag); }
  void on_end(uint32_t unit, uint64_t at_ns) override { policy_->on_end(unit, told_ns(at_ns)); }
  std::vector<Settled> on_settle() override {
    auto settled = policy_->on_settle();
    if (bug_ == Bug::settles_drop) {
      for (auto& one : settled) one.keep = false;
    }
    return settled;
  }

 private:
  uint64_t told_ns(uint64_t ended_ns) const { return bug_ == Bug::early_ends ? ended_ns / 2 : ended_ns; }

  const Bug bug_;
  std::unique_ptr<Policy> policy_;
  std::map<uint32_t, uint32_t> intervals_;
  size_t kept_ = 0;
};

// A policy that begins with other limits, and is given those of the execution when it has decided about some receives.
class Changed : public Policy {
 public:
  enum class To { shorter, longer, nothing };
  Changed(const std::string& policy, Limits limits, To to, uint64_t after) : limits_(limits), to_(to), left_(after) {
    if (to == To::longer) {
      limits.critical_path_ns -= limits.critical_path_ns / 4;
    } else {
      limits.critical_path_ns *= 2;
      limits.checkpoint_period_ns *= 2;
    }
    policy_ = make_policy(policy, limits).value();
  }

  void on_checkpoint(uint32_t unit, uint64_t ended_ns) override {
    ++intervals_[unit];
    policy_->on_checkpoint(unit, ended_ns);
  }
  Decision on_receive(uint32_t unit, uint64_t at_ns, const Tag& tag, uint64_t bytes) override {
    if (left_ > 0 && --left_ == 0) {
      before_ = intervals_;
      if (to_ != To::nothing) CHECK(policy_->set_limits(limits_.critical_path_ns, limits_.checkpoint_period_ns));
    }
    return policy_->on_receive(unit, at_ns, tag, bytes);
  }
  void on_skipped(uint32_t unit, uint64_t until_ns) override { policy_->on_skipped(unit, until_ns); }
  Tag on_send(uint32_t unit, uint64_t at_ns, uint64_t bytes) override { return policy_->on_send(unit, at_ns, bytes); }
  bool wants_checkpoint(uint32_t unit, uint64_t at_ns) override { return policy_->wants_checkpoint(unit, at_ns); }
  uint64_t checkpoint_by_ns(uint32_t unit) const override { return policy_->checkpoint_by_ns(unit); }
  void on_kept(uint32_t unit, const Tag& tag) override { policy_->on_kept(unit, tag); }
  void on_end(uint32_t unit, uint64_t at_ns) override { policy_->on_end(unit, at_ns); }
  std::vector<Settled> on_settle() override { return policy_->on_settle(); }

  // Whether the interval must keep the new limits.
  bool is_bound(uint32_t unit, uint32_t interval) const {
    if (to_ == To::longer) return true;
    const auto before = before_.find(unit);
    return left_ == 0 && (before == before_.end() || interval >= before->second);
  }

 private:
  const Limits limits_;
  const To to_;
  uint64_t left_;  // receives before the change
  std::unique_ptr<Policy> policy_;
  std::map<uint32_t, uint32_t> intervals_, before_;  // begun so far, and before the change
};

// Whether intervals keep C that begin after it was changed, or all of them if it became longer. `bound`: how many.
Complaint check_changed(const std::string& policy, uint64_t seed, Changed::To to, size_t& bound) {
  Simulation simulation = simulation_of(seed);
  Changed changed(policy, simulation.limits(), to, 1 + seed % 50);
  const World world = simulation.run(changed);
  const EventGraph events(world);
  const auto paths = events.paths(world.events.size());
  for (const auto& [unit, intervals] : world.units) {
    for (IntervalIndex i = 0; i < intervals.size(); ++i) {
      if (!changed.is_bound(unit, i)) continue;
      ++bound;
      const uint64_t path_ns = events.critical_path(paths, unit, i);
      if (path_ns > world.limits.critical_path_ns + intervals[i].late_ns()) {
        return at(unit, i, "critical path " + std::to_string(path_ns) + " exceeds the new C");
      }
    }
  }
  return std::nullopt;
}

uint64_t executions() {
  const char* wanted = std::getenv("REDRIVE_EXECUTIONS");
  return wanted ? std::strtoull(wanted, nullptr, 10) : 2 * kSeeds;
}

// An execution that is written down step by step. Times are those since the unit's checkpoint.
class Written {
 public:
  Written(Policy& policy, const Limits& limits, UnitId units) : policy_(policy) {
    world_.limits = limits;
    for (UnitId unit = 1; unit <= units; ++unit) {
      world_.units[unit].push_back({});
      policy_.on_checkpoint(unit);
    }
  }

  void checkpoint(UnitId unit, uint64_t at_ns) {
    auto& intervals = world_.units.at(unit);
    intervals.back().cpu_ns = at_ns;
    const EventIndex next = intervals.back().end_event;
    intervals.emplace_back();
    intervals.back().first_event = intervals.back().end_event = next;
    policy_.on_checkpoint(unit, at_ns);
    settle();
  }

  EventRef send(UnitId unit, uint64_t at_ns) {
    const EventRef event = happen(unit, at_ns, {});
    tags_[event] = policy_.on_send(unit, at_ns, 1);
    return event;
  }

  EventRef receive(UnitId unit, uint64_t at_ns, EventRef sender) {
    const auto decision = policy_.on_receive(unit, at_ns, tags_.at(sender), 1);
    CHECK_FALSE(decision.force_checkpoint_first);
    if (decision.keep == Keep::later) later_[decision.ticket] = world_.events.size();
    const EventRef event = happen(unit, at_ns, {sender});
    if (decision.keep == Keep::keep) world_.events.back().unlogged.clear();
    return event;
  }

  World end(uint64_t at_ns) {
    for (auto& [unit, intervals] : world_.units) {
      intervals.back().cpu_ns = at_ns;
      policy_.on_end(unit, at_ns);
    }
    settle();
    return world_;
  }

 private:
  EventRef happen(UnitId unit, uint64_t at_ns, const std::vector<EventRef>& received) {
    auto& intervals = world_.units.at(unit);
    const EventRef event{unit, intervals.back().end_event++};
    world_.events.push_back(
        {unit, event.event, static_cast<IntervalIndex>(intervals.size() - 1), at_ns, received, received});
    world_.at_ns[event] = at_ns;
    return event;
  }

  void settle() {
    for (const auto& settled : policy_.on_settle()) {
      if (settled.keep) world_.events[later_.at(settled.ticket)].unlogged.clear();
    }
  }

  Policy& policy_;
  World world_;
  std::map<EventRef, Tag> tags_;
  std::map<uint64_t, size_t> later_;  // by ticket: the event's place
};

// Units 1 to 4 in index 0: 1 sends to 2, 2 to 3 and, with `chain`, 3 to 4. When unit 1 begins its index 2, it knows
// that 2 and 3 are in their next index, but not that 4 is.
struct ChainOfReceivers {
  World world;
  size_t first = 0;  // the place of the receive of unit 2
  Breakpoint breakpoint;
};
ChainOfReceivers chain_of_receivers(Policy& policy, const Limits& limits, bool chain) {
  Written written(policy, limits, 4);
  const uint64_t period_ns = limits.checkpoint_period_ns;
  const EventRef received = written.receive(2, 10, written.send(1, 10));
  written.receive(3, 20, written.send(2, 20));
  if (chain) written.receive(4, 30, written.send(3, 30));
  const EventRef waiting = written.send(4, 40);
  for (const UnitId unit : {1, 2, 3}) written.checkpoint(unit, period_ns);
  const EventRef from_2 = written.send(2, 10), from_3 = written.send(3, 10);
  written.receive(1, 10, from_2);
  written.receive(1, 20, from_3);
  written.checkpoint(1, period_ns);
  const EventRef latest = written.send(1, period_ns - 1);
  // Then unit 4 goes on, and all know all that rule 2 asks for.
  written.checkpoint(4, period_ns);
  const EventRef from_4 = written.send(4, 10);
  written.receive(3, 20, from_4);
  written.receive(2, 20, written.send(3, 20));
  for (const UnitId unit : {2, 3, 4}) written.checkpoint(unit, period_ns);
  ChainOfReceivers out{written.end(period_ns), 0, {}};
  out.first = EventGraph(out.world).position(received);
  for (const EventRef& last : {latest, from_2, from_3, waiting}) out.breakpoint[last.unit] = last.event + 1;
  return out;
}

// The distance from the recovery line, at most.
uint64_t longest_distance_ns(const World& world, const Breakpoint& breakpoint) {
  const EventGraph events(world);
  uint64_t longest_ns = 0;
  for (const auto& [unit, start] : recovery_line(world, events, breakpoint)) {
    longest_ns = std::max(longest_ns, distance_ns(world, events, start, {unit, breakpoint.at(unit) - 1}));
  }
  return longest_ns;
}

}  // namespace

// Unit 4 has to start in index 0, so units 3 and 2 have to. If unit 1's message to unit 2 is not kept, unit 1 has to
// as well, although it is in index 2 already. Only the chain from unit 2 to unit 4 tells.
TEST_CASE("promises: ros: what only a chain of messages keeps cannot be dropped") {
  Limits limits;
  limits.checkpoint_period_ns = 100;
  for (const bool chain : {true, false}) {
    CAPTURE(chain);
    const auto policy = make_policy("ros", limits).value();
    auto [world, first, breakpoint] = chain_of_receivers(*policy, limits, chain);
    const auto is_kept = [&](const World::Happened& event) {
      return !event.received.empty() && event.unlogged.empty();
    };
    CHECK_EQ(is_kept(world.events[first]), chain);
    for (const auto& event : world.events) {
      if (event.interval == 0 && &event != &world.events[first]) CHECK_FALSE(is_kept(event));
    }
    CHECK_LE(longest_distance_ns(world, breakpoint), 2 * limits.checkpoint_period_ns);
    world.events[first].unlogged = world.events[first].received;  // as without the chain
    CHECK_EQ(longest_distance_ns(world, breakpoint) > 2 * limits.checkpoint_period_ns, chain);
  }
}

TEST_CASE("promises: every policy but none has one") {
  std::set<std::string> with{"none"};
  for (const auto& promise : kPromises) with.insert(promise.policy);
  for (const auto& policy : policies()) CHECK(with.contains(policy.name));
}

TEST_CASE("promises: kept on line and off line") {
  for (const auto& promise : kPromises) {
    CAPTURE(std::string(promise.policy));
    size_t kept = 0, decided = 0, forced = 0, late = 0, skipped = 0, told_late = 0, wrong = 0;
    for_each_seed(executions(), [&](uint64_t seed) {
      Simulation simulation = simulation_of(seed);
      const World world = simulation.run(*make_policy(promise.policy, simulation.limits()).value());
      const auto complaint = promise.check(world);
      if (complaint && ++wrong <= 3) CHECK_MESSAGE(!complaint, again(seed, complaint));
      kept += world.kept();
      decided += world.decisions.size();
      forced += world.forced;
      late += world.late();
      skipped += world.skipped;
      told_late += world.told_late;
    });
    CHECK_EQ(wrong, 0);
    if (std::getenv("REDRIVE_SEED")) continue;
    CHECK_GT(kept, decided / 100);  // otherwise the simulation is too easy
    if (std::string(promise.policy) != "all") CHECK_LT(kept, decided);
    if (std::string(promise.policy) == "mrt") CHECK_GT(forced, executions());
    for (const size_t disturbances : {late, skipped, told_late}) CHECK_GT(disturbances, executions());
    if (std::getenv("REDRIVE_EXECUTIONS")) {
      std::cout << promise.policy << ": " << executions() << " executions, " << decided << " receives, " << kept
                << " kept, " << told_late << " events told late, " << forced << " checkpoints forced, " << late
                << " late, " << skipped << " skipped, " << wrong << " executions wrong\n";
    }
  }
}

TEST_CASE("promises: kept with other limits from the change on") {
  for (const char* policy : {"critical-path", "critical-path-multiplicity", "makespan", "fewest-bytes"}) {
    for (const auto to : {Changed::To::shorter, Changed::To::longer}) {
      CAPTURE(policy);
      CAPTURE(to == Changed::To::longer);
      size_t wrong = 0, bound = 0;
      for_each_seed(executions(), [&](uint64_t seed) {
        const auto complaint = check_changed(policy, seed, to, bound);
        if (complaint && ++wrong <= 3) CHECK_MESSAGE(!complaint, again(seed, complaint));
      });
      CHECK_EQ(wrong, 0);
      if (!std::getenv("REDRIVE_SEED")) CHECK_GT(bound, executions());
    }
    size_t bound = 0;
    CHECK(complains([&](uint64_t seed) { return check_changed(policy, seed, Changed::To::nothing, bound); }));
  }
}

TEST_CASE("promises: the checkers find planted bugs") {
  const std::map<std::string, std::vector<Bug>> bugs{
      {"critical-path", {Bug::drops_some, Bug::forgets_chain, Bug::wider_limits, Bug::untold_skips}},
      {"fewest-bytes", {Bug::drops_some, Bug::forgets_chain, Bug::wider_limits, Bug::untold_skips, Bug::never_asks}},
      {"critical-path-multiplicity", {Bug::drops_some, Bug::forgets_chain, Bug::wider_limits, Bug::untold_skips}},
      {"deadline", {Bug::settles_drop, Bug::forgets_chain, Bug::wider_limits, Bug::early_ends}},
      {"makespan", {Bug::drops_some, Bug::forgets_chain, Bug::wider_limits, Bug::untold_skips}},
      {"replay-set", {Bug::drops_some, Bug::forgets_chain, Bug::wider_limits}},
      {"domino", {Bug::drops_some, Bug::forgets_chain, Bug::never_resets}},
      {"mrt", {Bug::drops_some, Bug::never_forces, Bug::settles_drop, Bug::no_rule_3}},
      {"mrt-waits", {Bug::drops_some, Bug::never_forces, Bug::settles_drop, Bug::no_rule_3}},
      {"ros", {Bug::drops_some, Bug::never_forces, Bug::settles_drop}},
      {"ros-nt", {Bug::drops_some, Bug::never_forces, Bug::settles_drop, Bug::no_rule_3}},
      {"all", {Bug::drops_some}},
  };
  for (const auto& promise : kPromises) {
    CAPTURE(std::string(promise.policy));
    REQUIRE(bugs.contains(promise.policy));
    const auto check = [&](uint64_t seed, Bug bug) {
      Simulation simulation = simulation_of(seed);
      Buggy policy(promise.policy, simulation.limits(), bug);
      return promise.check(simulation.run(policy));
    };
    for_each_seed(kSeeds / 4, [&](uint64_t seed) { CHECK_FALSE(check(seed, Bug::none)); });
    for (const Bug bug : bugs.at(promise.policy)) {
      CAPTURE(static_cast<int>(bug));
      CHECK(complains([&](uint64_t seed) { return check(seed, bug); }));
    }
  }
}

}  // namespace redrive::promises_test
