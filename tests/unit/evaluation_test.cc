// Off-line evaluation: compares its figures with those of the planner, which shares no code with it, and with what a
// schedule must obey.
#include "supervisor/evaluation/evaluation.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "supervisor/plan/plan.h"
#include "tests/unit/unit_test.h"

namespace redrive::evaluation_test {

namespace {

using What = Execution::What;

PolicyParameters parameters() {
  PolicyParameters out;
  out.critical_path_ns = 40'000'000;
  out.checkpoint_period_ns = 20'000'000;
  return out;
}

struct Evaluated {
  Execution execution;
  Decided decided;
};

Evaluated evaluate(const std::string& pattern, const std::string& policy, uint64_t seed,
                   PolicyParameters limits = parameters()) {
  Evaluated out;
  out.execution = make_execution({pattern, 5, 1600, seed});
  const auto made = make_policy(policy, limits).value();
  out.decided = decide(out.execution, *made, limits, {false, seed % 2 ? 0 : limits.checkpoint_period_ns, seed}).value();
  return out;
}

// Events are the steps of an execution by number, intervals those of each unit in order.
Rdg graph_of(const Evaluated& evaluated) {
  Rdg rdg;
  const auto& [execution, decided] = evaluated;
  std::vector<EventIndex> events(execution.units);
  std::vector<EventRef> event_of(execution.steps.size());
  std::vector<uint32_t> current(execution.units, UINT32_MAX);
  for (uint32_t i = 0; i < execution.steps.size(); ++i) {
    const auto& step = execution.steps[i];
    const uint32_t interval = decided.interval_of[i];
    auto& intervals = rdg.units[step.unit];
    while (current[step.unit] != interval) {  // including those without a step
      uint32_t& at = current[step.unit];
      do ++at;
      while (decided.intervals[at].unit != step.unit);
      intervals.push_back({events[step.unit], events[step.unit], decided.intervals[at].cpu_ns(), true, std::nullopt});
    }
    if (step.what == What::end) continue;
    event_of[i] = {step.unit, events[step.unit]++};
    intervals.back().end_event = events[step.unit];
    if (step.what != What::receive || decided.kept[i]) continue;
    for (uint32_t k = 0; k < step.sender_count; ++k) {
      const uint32_t sender = execution.senders[step.first_sender + k];
      const auto at_ns = [&](uint32_t of) {
        return execution.steps[of].at_ns - decided.intervals[decided.interval_of[of]].start_ns;
      };
      rdg.unlogged[step.unit].push_back({event_of[i], event_of[sender], at_ns(i), at_ns(sender)});
    }
  }
  return rdg;
}

}  // namespace

TEST_CASE("evaluation: replay sets, work and critical paths are the planner's") {
  for (const auto& pattern : synthetic_patterns()) {
    for (const char* policy : {"critical-path", "none", "replay-set", "mrt"}) {
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        CAPTURE(pattern);
        CAPTURE(std::string(policy));
        CAPTURE(seed);
        const Evaluated evaluated = evaluate(pattern, policy, seed);
        const Rdg rdg = graph_of(evaluated);
        Spread sets, work, paths;
        uint64_t intervals = 0;
        for (const auto& [unit, of_unit] : rdg.units) {
          for (IntervalIndex i = 0; i < of_unit.size(); ++i, ++intervals) {
            const auto planned = plan(rdg, unit, i).plan.value();
            sets.add(static_cast<double>(planned.replay_set.size()));
            work.add(static_cast<double>(planned.work_ns) * 1e-9);
            paths.add(static_cast<double>(planned.critical_path_ns) * 1e-9);
          }
        }
        const Costs costs = measure(evaluated.execution, evaluated.decided, 2);
        CHECK_EQ(costs.measured, costs.intervals);
        CHECK_EQ(costs.intervals, intervals);
        CHECK_EQ(costs.replay_set.sum, sets.sum);
        CHECK_EQ(costs.replay_set.largest, sets.largest);
        CHECK_EQ(costs.work_s.sum, doctest::Approx(work.sum));
        CHECK_EQ(costs.work_s.largest, doctest::Approx(work.largest));
        CHECK_EQ(costs.critical_path_s.sum, doctest::Approx(paths.sum));
        CHECK_EQ(costs.critical_path_s.largest, doctest::Approx(paths.largest));
      }
    }
  }
}

TEST_CASE("evaluation: a schedule takes the work on one core, the critical path on many, and Graham's bound at most") {
  for (const auto& pattern : synthetic_patterns()) {
    for (const char* policy : {"critical-path", "none"}) {
      CAPTURE(pattern);
      CAPTURE(std::string(policy));
      const Evaluated evaluated = evaluate(pattern, policy, 1);
      const auto on = [&](uint32_t cores) { return measure(evaluated.execution, evaluated.decided, cores); };
      const Costs one = on(1), two = on(2), many = on(1000);
      CHECK_EQ(one.makespan_s.sum, doctest::Approx(one.work_s.sum));
      CHECK_EQ(many.makespan_s.sum, doctest::Approx(many.critical_path_s.sum));
      CHECK_LE(two.makespan_s.sum, two.predicted_s.sum + 1e-9);
      CHECK_GE(two.makespan_s.sum, std::max(two.critical_path_s.sum, two.work_s.sum / 2) - 1e-9);
    }
  }
}

TEST_CASE("evaluation: a replay set that was stored while the program ran is what a search finds") {
  for (const auto& pattern : synthetic_patterns()) {
    for (const char* policy : {"critical-path", "none", "replay-set", "mrt", "all"}) {
      CAPTURE(pattern);
      CAPTURE(std::string(policy));
      const auto [execution, decided] = evaluate(pattern, policy, 3);
      const StoredSets stored(execution, decided);
      ReplaySets sets(execution, decided);
      size_t members = 0;
      for (uint32_t i = 0; i < decided.intervals.size(); ++i) {
        std::vector<uint32_t> found;
        for (const Member& member : sets.find(i)) found.push_back(member.interval);
        std::sort(found.begin(), found.end());
        CHECK(stored.load(i) == found);
        members += found.size();
      }
      CHECK_GT(stored.bytes(), members);
      CHECK_LE(stored.bytes(), 4 * members);
    }
  }
}

// Theorem 1 of Netzer et al. holds for each interval, and so does what `cyclic` is: between the critical path and one
// processor's work.
TEST_CASE("evaluation: a cyclic schedule takes at most M critical paths") {
  size_t longer = 0;  // than the critical path
  for (const auto& pattern : synthetic_patterns()) {
    for (const char* policy : {"critical-path", "none"}) {
      CAPTURE(pattern);
      CAPTURE(std::string(policy));
      const auto [execution, decided] = evaluate(pattern, policy, 1);
      const auto paths_ns = critical_paths_ns(execution, decided);
      ReplaySets sets(execution, decided);
      Schedule schedule(execution, decided);
      for (uint32_t i = 0; i < decided.intervals.size(); ++i) {
        const auto& members = sets.find(i);
        std::map<uint32_t, uint64_t> intervals, work_ns;  // by unit
        uint64_t most = 0, least_ns = paths_ns[i], all_ns = 0;
        for (const Member& member : members) {
          const uint32_t unit = decided.intervals[member.interval].unit;
          most = std::max(most, ++intervals[unit]);
          least_ns = std::max(least_ns, work_ns[unit] += member.cpu_ns);
          all_ns += member.cpu_ns;
        }
        const uint64_t time_ns = schedule.time_ns(ScheduleKind::cyclic, 1, members).value();
        CHECK_GE(time_ns + 1, least_ns);
        CHECK_LE(time_ns, std::min(most * paths_ns[i], all_ns) + 1);
        longer += time_ns > paths_ns[i] + 1;
      }
    }
  }
  CHECK_GT(longer, 100);
}

TEST_CASE("evaluation: policies keep their promises on patterns") {
  PolicyParameters limits = parameters();
  limits.set_bound = 4;
  limits.cores = 3;
  for (const auto& pattern : synthetic_patterns()) {
    CAPTURE(pattern);
    const auto costs_of = [&](const char* policy) {
      const Evaluated evaluated = evaluate(pattern, policy, 2, limits);
      return measure(evaluated.execution, evaluated.decided, limits.cores);
    };
    const double limit_s = 0.040 + 1e-12;
    CHECK_LE(costs_of("critical-path").critical_path_s.largest, limit_s);
    CHECK_LE(costs_of("makespan").predicted_s.largest, limit_s);
    CHECK_LE(costs_of("makespan").makespan_s.largest, limit_s);
    CHECK_LE(costs_of("replay-set").replay_set.largest, 4);
    CHECK_EQ(costs_of("all").replay_set.largest, 1);
    CHECK_GT(costs_of("none").critical_path_s.largest, limit_s);
  }
}

TEST_CASE("evaluation: checkpoints come every T, the first within the skew") {
  const PolicyParameters limits = parameters();
  for (const uint64_t skew_ns : {uint64_t{0}, limits.checkpoint_period_ns / 4}) {
    const Execution execution = make_execution({"random", 6, 2000, 7});
    const auto policy = make_policy("none", limits).value();
    const Decided decided = decide(execution, *policy, limits, {false, skew_ns, 3}).value();
    std::vector<int> seen(execution.units);
    for (const auto& interval : decided.intervals) {
      const int index = seen[interval.unit]++;
      CHECK_LE(interval.cpu_ns(), limits.checkpoint_period_ns);
      if (index == 1) CHECK_LE(interval.start_ns, skew_ns ? skew_ns : limits.checkpoint_period_ns);
      if (index == 1 && skew_ns == 0) CHECK_EQ(interval.start_ns, limits.checkpoint_period_ns);
    }
    CHECK_EQ(decided.checkpoints + execution.units, decided.intervals.size());
    CHECK_GT(decided.checkpoints, execution.units);
  }
}

TEST_CASE("evaluation: by the real-time clock, checkpoints come at multiples of T from each unit's first one on") {
  const PolicyParameters limits = parameters();
  const uint64_t period_ns = limits.checkpoint_period_ns;
  for (const auto& pattern : synthetic_patterns()) {
    for (const uint64_t skew_ns : {uint64_t{0}, period_ns / 2}) {
      CAPTURE(pattern);
      CAPTURE(skew_ns);
      const Execution execution = make_execution({pattern, 5, 1600, 3});
      const auto policy = make_policy("critical-path", limits).value();
      const Decided decided =
          decide(execution, *policy, limits, {false, skew_ns, 3, true, false, PlacementClock::real}).value();
      CHECK_LE(measure(execution, decided, 2).critical_path_s.largest, 0.040 + 1e-12);
      const auto elapsed = elapsed_ns(execution);
      std::vector<uint32_t> last(execution.units, UINT32_MAX);  // step
      std::vector<std::optional<uint64_t>> first_ns(execution.units);
      size_t waited = 0;
      for (uint32_t i = 0; i < execution.steps.size(); ++i) {
        const auto& step = execution.steps[i];
        const uint32_t before = std::exchange(last[step.unit], i);
        if (before == UINT32_MAX) continue;
        for (uint32_t k = decided.interval_of[before] + 1; k <= decided.interval_of[i]; ++k) {
          const auto& interval = decided.intervals[k];
          if (interval.unit != step.unit) continue;
          // The unit got there at once, and may have waited there.
          const uint64_t from_ns = elapsed[before] + interval.start_ns - execution.steps[before].at_ns;
          const bool waits = interval.start_ns == step.at_ns;
          if (!first_ns[step.unit] && !waits) first_ns[step.unit] = from_ns % period_ns;
          if (!first_ns[step.unit]) continue;
          const uint64_t since_ns = (from_ns + period_ns - *first_ns[step.unit]) % period_ns;
          const uint64_t due_ns = from_ns + (since_ns == 0 ? 0 : period_ns - since_ns);
          CHECK_LE(due_ns, waits ? elapsed[i] : from_ns);
          CHECK_GT(interval.start_ns, 0);
          waited += waits;
        }
      }
      for (const auto& unit_ns : first_ns) CHECK_LE(unit_ns.value_or(0), skew_ns);
      if (pattern == "ring") CHECK_GT(waited, 0);
    }
  }
}

TEST_CASE("evaluation: by the real-time clock, what waits leaves room in a path, and mrt keeps only what crosses") {
  const PolicyParameters limits = parameters();
  const Execution execution = make_execution({"random", 5, 1600, 3});
  const auto evaluated = [&](const char* policy, uint64_t skew_ns, PlacementClock clock) {
    const auto made = make_policy(policy, limits).value();
    return decide(execution, *made, limits, {false, skew_ns, 3, true, false, clock}).value();
  };
  const auto logged = [&](const char* policy, uint64_t skew_ns, PlacementClock clock) {
    return count_logged(execution, evaluated(policy, skew_ns, clock)).logged_messages;
  };
  const uint64_t skew_ns = limits.checkpoint_period_ns;
  for (const char* policy : {"critical-path", "critical-path-multiplicity", "mrt", "ros-nt"}) {
    CAPTURE(std::string(policy));
    CHECK_LT(10 * logged(policy, 0, PlacementClock::real), logged(policy, 0, PlacementClock::cpu));
    CHECK_LT(logged(policy, 0, PlacementClock::real), logged(policy, skew_ns, PlacementClock::real));
  }
  CHECK_GT(evaluated("mrt", skew_ns, PlacementClock::real).forced_checkpoints, 0);
}

// A message takes no time, so it is never received before its sender's checkpoint and its receiver's, nor sooner after
// them than it was sent; also by a unit that has waited through several of its own.
TEST_CASE("evaluation: by the real-time clock, mrt forces no checkpoint, and its rule 3 keeps nothing") {
  const PolicyParameters limits = parameters();
  uint64_t kept = 0;
  for (const auto& pattern : synthetic_patterns()) {
    CAPTURE(pattern);
    const Execution execution = make_execution({pattern, 5, 1600, 3});
    const auto decided = [&](const char* policy) {
      return decide(execution, *make_policy(policy, limits).value(), limits,
                    {false, 0, 1, true, false, PlacementClock::real})
          .value();
    };
    for (const char* policy : {"mrt", "ros", "ros-nt"}) CHECK_EQ(decided(policy).forced_checkpoints, 0);
    CHECK(decided("ros").kept == decided("ros-nt").kept);
    kept += count_logged(execution, decided("ros")).logged_messages;
  }
  CHECK_GT(kept, 0);
}

// An execution that is written down step by step, times in milliseconds.
class Script {
 public:
  explicit Script(uint32_t units) {
    execution_.units = units;
    for (uint32_t unit = 0; unit < units; ++unit) add(What::program, unit, 0);
  }

  uint32_t add(What what, uint32_t unit, uint64_t at_ms, std::vector<uint32_t> senders = {}) {
    auto& step = execution_.steps.emplace_back();
    step.what = what;
    step.unit = unit;
    step.at_ns = at_ms * 1'000'000;
    step.message = what == What::receive;
    step.first_sender = static_cast<uint32_t>(execution_.senders.size());
    step.sender_count = static_cast<uint32_t>(senders.size());
    execution_.senders.insert(execution_.senders.end(), senders.begin(), senders.end());
    return static_cast<uint32_t>(execution_.steps.size() - 1);
  }

  const Execution& execution() const { return execution_; }

 private:
  Execution execution_;
};

TEST_CASE("evaluation: a birth that is not kept needs its parent's fork, one that is kept nothing") {
  // Unit 0 computes 10 ms and forks unit 1, which computes 5 ms.
  Script script(1);
  const uint32_t fork = script.add(What::send, 0, 10);
  script.add(What::birth, 1, 0, {fork});
  script.add(What::end, 0, 12);
  script.add(What::end, 1, 5);
  Execution execution = script.execution();
  execution.units = 2;
  const auto cost = [&](const char* policy) {
    const auto made = make_policy(policy, parameters()).value();
    return measure(execution, decide(execution, *made, parameters(), {}).value(), 1);
  };
  CHECK_EQ(cost("none").critical_path_s.largest, doctest::Approx(0.015));
  CHECK_EQ(cost("none").replay_set.largest, 2);
  CHECK_EQ(cost("none").makespan_s.largest, doctest::Approx(0.015));
  CHECK_EQ(cost("all").critical_path_s.largest, doctest::Approx(0.012));
  CHECK_EQ(cost("all").replay_set.largest, 1);
}

TEST_CASE("evaluation: time elapses while a unit computes, and while it waits") {
  Script script(2);
  const uint32_t first = script.add(What::send, 0, 5);
  const uint32_t receive = script.add(What::receive, 1, 1, {first});
  const uint32_t second = script.add(What::send, 1, 3);
  const uint32_t at_once = script.add(What::receive, 0, 9, {second});
  const auto elapsed = elapsed_ns(script.execution());
  CHECK_EQ(elapsed[receive], 5'000'000);
  CHECK_EQ(elapsed[second], 7'000'000);
  CHECK_EQ(elapsed[at_once], 9'000'000);
}

TEST_CASE("evaluation: a cyclic schedule shares each unit's processor among its intervals") {
  // Unit 1 computes 6 ms, sends, takes a checkpoint, computes 6 ms, and sends again. Unit 0 receives both at once, and
  // computes 2 ms.
  Script script(2);
  const uint32_t first = script.add(What::send, 1, 6);
  script.add(What::checkpoint, 1, 6);
  const uint32_t second = script.add(What::send, 1, 12);
  script.add(What::receive, 0, 0, {first});
  script.add(What::receive, 0, 0, {second});
  script.add(What::end, 0, 2);
  script.add(What::end, 1, 12);
  const Execution& execution = script.execution();
  const Decided decided = decide(execution, *make_policy("none", parameters()).value(), parameters(), {}).value();
  const auto longest_s = [&](ScheduleKind kind, uint32_t cores) {
    return measure(execution, decided, cores, kind).makespan_s.largest;
  };
  CHECK_EQ(longest_s(ScheduleKind::list, 3), doctest::Approx(0.008));
  CHECK_EQ(longest_s(ScheduleKind::list, 1), doctest::Approx(0.014));
  CHECK_EQ(longest_s(ScheduleKind::cyclic, 3), doctest::Approx(0.014));
  CHECK_EQ(longest_s(ScheduleKind::frontier, 3), doctest::Approx(0.014));
  CHECK_EQ(measure(execution, decided, 3).multiplicity.largest, 2);
}

// What Zambonelli and Netzer say of domino: who knows only the left frontier of a replay set may wait for ever. Unit 1
// sends `early` in its first interval and `late` in its second. Between them it receives what unit 2 has sent in its
// first interval, while unit 0 needs unit 2's second. So the frontier of unit 0's interval is the first of unit 1 and
// the second of unit 2: unit 1, executed from there on, waits for a message that unit 2 does not send again.
TEST_CASE("evaluation: a replay from the left frontier may wait for ever, one of the replay set does not") {
  Script script(3);
  const uint32_t early = script.add(What::send, 1, 1);
  const uint32_t between = script.add(What::send, 2, 1);
  script.add(What::receive, 1, 2, {between});
  script.add(What::checkpoint, 1, 3);
  script.add(What::checkpoint, 2, 3);
  const uint32_t late = script.add(What::send, 1, 4);
  const uint32_t other = script.add(What::send, 2, 4);
  for (const uint32_t sender : {early, late, other}) script.add(What::receive, 0, 1, {sender});
  for (uint32_t unit = 0; unit < 3; ++unit) script.add(What::end, unit, 5);
  const Execution& execution = script.execution();
  for (const char* policy : {"domino", "replay-set"}) {
    CAPTURE(std::string(policy));
    const Decided decided = decide(execution, *make_policy(policy, parameters()).value(), parameters(), {}).value();
    CHECK_EQ(count_logged(execution, decided).logged_messages, 0);
    ReplaySets sets(execution, decided);
    const auto& members = sets.find(decided.interval_of[0]);  // the interval of unit 0
    CHECK_EQ(members.size(), 4);
    Schedule schedule(execution, decided);
    CHECK_FALSE(schedule.time_ns(ScheduleKind::frontier, 1, members));
    CHECK_EQ(schedule.time_ns(ScheduleKind::list, 4, members), 5'000'000);
    CHECK_EQ(schedule.time_ns(ScheduleKind::cyclic, 1, members), 6'000'000);  // unit 1 executes two at once
    CHECK_EQ(measure(execution, decided, 1, ScheduleKind::frontier).deadlocks, 1);
    CHECK_EQ(measure(execution, decided, 1).deadlocks, 0);
  }
}

TEST_CASE("synthetic executions have what was asked for, and the same from the same seed") {
  for (const auto& pattern : synthetic_patterns()) {
    CAPTURE(pattern);
    const Execution one = make_execution({pattern, 9, 500, 3}), same = make_execution({pattern, 9, 500, 3});
    const Execution other = make_execution({pattern, 9, 500, 4});
    const auto messages = [](const Execution& e) {
      return std::count_if(e.steps.begin(), e.steps.end(), [](const auto& step) { return step.message; });
    };
    const auto time_ns = [](const Execution& e) {
      return std::accumulate(e.steps.begin(), e.steps.end(), uint64_t{0},
                             [](uint64_t sum, const auto& step) { return sum + step.at_ns; });
    };
    CHECK_EQ(one.units, 9);
    CHECK_EQ(messages(one), 500);
    CHECK_EQ(time_ns(one), time_ns(same));
    CHECK(time_ns(one) != time_ns(other));
    std::vector<uint64_t> at_ns(one.units);
    for (const auto& step : one.steps) {
      CHECK_GE(step.at_ns, at_ns[step.unit]);
      at_ns[step.unit] = step.at_ns;
      for (uint32_t k = 0; k < step.sender_count; ++k) {
        const uint32_t sender = one.senders[step.first_sender + k];
        CHECK_LT(sender, static_cast<uint32_t>(&step - one.steps.data()));
        CHECK(one.steps[sender].what == What::send);
      }
    }
  }
}

TEST_CASE("times that no recording has do not become checkpoints without end") {
  for (const auto clock : {PlacementClock::cpu, PlacementClock::real}) {
    Script script(1);
    script.add(What::end, 0, uint64_t{1} << 40);
    const auto policy = make_policy("none", parameters()).value();
    const auto decided = decide(script.execution(), *policy, parameters(), {false, 0, 1, true, false, clock});
    REQUIRE_FALSE(decided);
    CHECK_NE(decided.error().message.find("checkpoint period"), std::string::npos);
  }
}

}  // namespace redrive::evaluation_test
