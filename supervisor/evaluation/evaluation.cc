#include "supervisor/evaluation/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/assert.h"
#include "base/units.h"
#include "supervisor/evaluation/replay_sets.h"
#include "supervisor/plan/certificate.h"
#include "supervisor/plan/restore_cost.h"

namespace redrive {
namespace {

using What = Execution::What;
using Step = Execution::Step;

// Replay sets are built until they have this many dependences in total, which takes a few seconds.
constexpr uint64_t kMostVisits = 5'000'000;
// ... or until replays from the left frontier have executed so many steps.
constexpr uint64_t kMostSteps = 200'000'000;
// Each takes about 100 bytes, or more if the policy remembers it.
constexpr uint64_t kMostDue = 4'000'000;

// Feeds an execution to a policy.
class Deciding {
 public:
  Deciding(const Execution& execution, Policy& policy, const PolicyParameters& parameters,
           const CheckpointPlacement& placement)
      : execution_(execution),
        policy_(policy),
        period_ns_(parameters.checkpoint_period_ns),
        placement_(placement),
        compares_units_(placement.clock == PlacementClock::real && policy.compares_units()),
        random_(placement.seed),
        units_(execution.units),
        last_use_(execution.steps.size()),
        tags_(execution.steps.size()) {
    out_.interval_of.resize(execution.steps.size());
    out_.kept.resize(execution.steps.size());
    for (uint32_t i = 0; i < execution.steps.size(); ++i) {
      for (const uint32_t sender : execution.senders_of(execution.steps[i])) last_use_[sender] = i;
    }
    if (placement.lengths_known) ends_ = recorded_ends();
    if (placement.clock == PlacementClock::real) elapsed_ns_ = elapsed_ns(execution);
  }

  Result<Decided> run() {
    for (uint32_t i = 0; i < execution_.steps.size(); ++i) {
      const Step& step = execution_.steps[i];
      TRY(take_due_checkpoints(i, step));
      if (step.what == What::program || step.what == What::birth) begin_program(i, step);
      if (step.what == What::checkpoint && placement_.recorded) checkpoint(step.unit, step.at_ns, step.restore_s, 0);
      if (step.what == What::send) tags_[i] = policy_.on_send(step.unit, told_ns(i, step), step.bytes);
      if ((step.what == What::receive || step.what == What::birth) && step.sender_count > 0) receive(i, step);
      out_.interval_of[i] = units_[step.unit].interval;
      units_[step.unit].stepped = true;
      units_[step.unit].at_ns = step.at_ns;
      units_[step.unit].clock_ns = clock_ns(i);
      if (step.what == What::end) end(step);
    }
    ASSERT(later_.empty());
    return std::move(out_);
  }

 private:
  struct Unit {
    uint32_t interval = 0;  // index of the current interval
    size_t intervals = 0;   // how many intervals have begun
    bool began = false;
    bool stepped = false;          // in its interval
    uint64_t began_ns = 0;         // its interval, by the clock
    uint64_t at_ns = 0;            // of its last step
    uint64_t clock_ns = 0;         // ... by the clock
    uint64_t due_ns = UINT64_MAX;  // the next checkpoint, by the clock
    double restore_s = 0;
  };

  static bool begins_interval(const Step& step) {
    return step.what == What::program || step.what == What::birth || step.what == What::checkpoint;
  }

  // For each unit, the ends of its intervals in order.
  std::vector<std::vector<uint64_t>> recorded_ends() const {
    std::vector<std::vector<uint64_t>> ends(execution_.units);
    std::vector<bool> began(execution_.units);
    for (const Step& step : execution_.steps) {
      if (!begins_interval(step) && step.what != What::end) continue;
      if (began[step.unit]) ends[step.unit].push_back(step.at_ns);
      began[step.unit] = true;
    }
    return ends;
  }

  // Where the unit's n-th interval ends, which begins here. If the policy has forced checkpoints, this is where the
  // recorded interval at this place ends. Nullopt if the recording was cut off before that.
  std::optional<uint64_t> recorded_end(uint32_t unit, size_t n, uint64_t at_ns) const {
    const auto& ends = ends_[unit];
    if (n < ends.size() && ends[n] >= at_ns) return ends[n];
    const auto later = std::ranges::upper_bound(ends, at_ns);
    return later == ends.end() ? std::nullopt : std::optional(*later);
  }

  uint64_t at_ns(const Step& step) const { return step.at_ns - out_.intervals[units_[step.unit].interval].start_ns; }

  // The clock's time at a step.
  uint64_t clock_ns(uint32_t i) const { return elapsed_ns_.empty() ? execution_.steps[i].at_ns : elapsed_ns_[i]; }

  // A step's time in its interval, as the policy is told it.
  uint64_t told_ns(uint32_t i, const Step& step) const {
    return compares_units_ ? clock_ns(i) - units_[step.unit].began_ns : at_ns(step);
  }

  // Between two of its steps a unit computes first, and then waits.
  Result<void> take_due_checkpoints(uint32_t i, const Step& step) {
    Unit& unit = units_[step.unit];
    if (placement_.recorded || !unit.began) return {};
    for (;; ++due_) {
      if (due_ == kMostDue) {
        return Error{fmt::format("more than {} checkpoints would be due: choose a longer checkpoint period", kMostDue)};
      }
      const bool is_due = unit.due_ns < clock_ns(i);
      const uint64_t due_at_ns = is_due ? std::min(unit.at_ns + unit.due_ns - unit.clock_ns, step.at_ns) : UINT64_MAX;
      const uint64_t by_at_ns = by_at_ns_of(step.unit);
      if (by_at_ns < std::min(due_at_ns, step.at_ns)) {
        checkpoint(step.unit, by_at_ns, unit.restore_s, unit.clock_ns + by_at_ns - unit.at_ns);
      } else if (!is_due) {
        break;
      } else if (unit.stepped || due_at_ns > out_.intervals[unit.interval].start_ns) {
        checkpoint(step.unit, due_at_ns, unit.restore_s, unit.due_ns);
      } else {
        policy_.on_checkpoint(step.unit);  // nothing has happened in its interval
        settle();
        unit.began_ns = std::exchange(unit.due_ns, unit.due_ns + period_ns_);
      }
    }
    const bool last = step.what == What::end;  // nothing would follow the checkpoint
    if (!last && policy_.wants_checkpoint(step.unit, at_ns(step)))
      checkpoint(step.unit, step.at_ns, unit.restore_s, clock_ns(i));
    return {};
  }

  // When the policy wants the unit's next checkpoint, in CPU time since the unit's beginning.
  uint64_t by_at_ns_of(uint32_t id) const {
    const uint64_t by_ns = policy_.checkpoint_by_ns(id);
    return by_ns == UINT64_MAX ? by_ns : out_.intervals[units_[id].interval].start_ns + by_ns;
  }

  void begin_program(uint32_t i, const Step& step) {
    begin_interval(step.unit, step.at_ns, step.restore_s);
    units_[step.unit].began_ns = clock_ns(i);
    if (placement_.recorded || period_ns_ == 0) return;
    const uint64_t most_ns = placement_.skew_ns > 0 ? std::min(placement_.skew_ns, period_ns_) : period_ns_;
    const uint64_t first_ns = placement_.skew_ns > 0 ? 1 + random_() % most_ns : most_ns;
    Unit& unit = units_[step.unit];
    if (placement_.clock == PlacementClock::cpu) {
      unit.due_ns = step.at_ns + first_ns;
    } else if (unit.due_ns == UINT64_MAX) {
      const uint64_t now_ns = clock_ns(i);
      unit.due_ns = now_ns < first_ns ? first_ns : now_ns + period_ns_ - (now_ns - first_ns) % period_ns_;
    }
  }

  // `clock_ns`: when that is by the clock, if the checkpoint is not a recorded one.
  void checkpoint(uint32_t unit, uint64_t at_ns, double restore_s, uint64_t clock_ns) {
    ++out_.checkpoints;
    begin_interval(unit, at_ns, restore_s);
    if (placement_.recorded) return;
    units_[unit].began_ns = clock_ns;
    units_[unit].due_ns = clock_ns + period_ns_;
  }

  void begin_interval(uint32_t id, uint64_t at_ns, double restore_s) {
    Unit& unit = units_[id];
    uint64_t ended_ns = 0;
    if (std::exchange(unit.began, true)) {
      out_.intervals[unit.interval].end_ns = at_ns;
      ended_ns = out_.intervals[unit.interval].cpu_ns();
    }
    unit.interval = static_cast<uint32_t>(out_.intervals.size());
    unit.restore_s = restore_s;
    unit.stepped = false;
    out_.intervals.push_back({id, at_ns, at_ns, std::nullopt, restore_s});
    policy_.on_checkpoint(id, ended_ns);
    // As far as an execution says it: what was mapped, it does not.
    const double memory_s = std::max(restore_s - execution_.stub_s, 0.0);
    const auto memory_bytes = static_cast<uint64_t>(memory_s * kRestoreBytesPerSecond);
    policy_.on_restore_known(id, nanoseconds(start_s(execution_.stub_s, 0, 0, memory_bytes)), memory_bytes);
    if (const auto end = placement_.lengths_known ? recorded_end(id, unit.intervals, at_ns) : std::nullopt) {
      policy_.on_length_known(id, *end - at_ns);
    }
    ++unit.intervals;
    settle();
  }

  void receive(uint32_t i, const Step& step) {
    Tag tag = tags_[execution_.senders_of(step).front()];
    for (const uint32_t sender : execution_.senders_of(step)) {
      tag = join(tag, tags_[sender]);
      if (last_use_[sender] == i) tags_[sender] = {};
    }
    auto decision = ask(i, step, tag);
    if (decision.force_checkpoint_first && !placement_.forced) {
      policy_.on_kept(step.unit, tag);
    } else if (decision.force_checkpoint_first) {
      if (step.what == What::birth) {
        policy_.on_checkpoint(step.unit);  // nothing has happened in its interval
      } else {
        ++out_.forced_checkpoints;
        checkpoint(step.unit, step.at_ns, units_[step.unit].restore_s, clock_ns(i));
      }
      decision = ask(i, step, tag);
    }
    if (decision.keep == Keep::later) later_[decision.ticket] = {i, units_[step.unit].interval};
    set_kept(i, units_[step.unit].interval, decision.keep == Keep::keep);
  }

  Policy::Decision ask(uint32_t i, const Step& step, const Tag& tag) {
    const uint64_t due_ns = units_[step.unit].due_ns;
    if (placement_.clock == PlacementClock::real && due_ns != UINT64_MAX) {
      policy_.on_end_known(step.unit, at_ns(step) + due_ns - clock_ns(i));
    }
    return policy_.on_receive(step.unit, told_ns(i, step), tag, step.bytes);
  }

  void set_kept(uint32_t i, uint32_t interval, bool kept) {
    const Step& step = execution_.steps[i];
    out_.kept[i] = kept;
    if (step.what != What::birth) return;
    if (kept) {
      out_.intervals[interval].birth.reset();
    } else {
      out_.intervals[interval].birth = execution_.senders_of(step).front();
    }
  }

  void end(const Step& step) {
    out_.intervals[units_[step.unit].interval].end_ns = step.at_ns;
    policy_.on_end(step.unit, at_ns(step));
    settle();
  }

  void settle() {
    for (const auto& settled : policy_.on_settle()) {
      const auto [step, interval] = later_.at(settled.ticket);
      later_.erase(settled.ticket);
      set_kept(step, interval, settled.keep);
    }
  }

  const Execution& execution_;
  Policy& policy_;
  const uint64_t period_ns_;
  const CheckpointPlacement placement_;
  const bool compares_units_;         // policy_, by the real-time clock
  std::vector<uint64_t> elapsed_ns_;  // by step, with the real-time clock
  std::mt19937_64 random_;
  uint64_t due_ = 0;  // how many checkpoints were due
  std::vector<Unit> units_;
  std::vector<std::vector<uint64_t>> ends_;                            // recorded_ends(), if the policy is told
  std::vector<uint32_t> last_use_;                                     // by send: the step that receives its last bytes
  std::vector<Tag> tags_;                                              // by step
  std::unordered_map<uint64_t, std::pair<uint32_t, uint32_t>> later_;  // by ticket: step, interval
  Decided out_;
};

}  // namespace

const std::vector<std::string>& clock_names() {
  static const std::vector<std::string> kNames{"cpu", "real"};
  return kNames;
}

Result<Decided> decide(const Execution& execution, Policy& policy, const PolicyParameters& parameters,
                       const CheckpointPlacement& placement) {
  return Deciding(execution, policy, parameters, placement).run();
}

Logged count_logged(const Execution& execution, const Decided& decided) {
  Logged logged;
  for (size_t i = 0; i < execution.steps.size(); ++i) {
    const Step& step = execution.steps[i];
    if (step.what == What::birth) {
      ++logged.births;
      logged.stored_births += decided.kept[i];
    }
    if (!step.message) continue;
    ++logged.messages;
    logged.message_bytes += step.bytes;
    logged.logged_messages += decided.kept[i];
    logged.logged_bytes += decided.kept[i] ? step.bytes : 0;
  }
  return logged;
}

std::vector<uint64_t> critical_paths_ns(const Execution& execution, const Decided& decided) {
  struct Reached {
    uint64_t at_ns = 0, path_ns = 0;
  };
  std::vector<Reached> reached(decided.intervals.size());
  std::vector<uint64_t> path_ns(execution.steps.size());
  for (uint32_t i = 0; i < execution.steps.size(); ++i) {
    const Step& step = execution.steps[i];
    const uint32_t interval = decided.interval_of[i];
    if (step.what == What::end) continue;
    Reached& now = reached[interval];
    const uint64_t at_ns = step.at_ns - decided.intervals[interval].start_ns;
    now.path_ns += at_ns - now.at_ns;
    now.at_ns = at_ns;
    if ((step.what == What::receive || step.what == What::birth) && !decided.kept[i]) {
      for (const uint32_t sender : execution.senders_of(step)) now.path_ns = std::max(now.path_ns, path_ns[sender]);
    }
    path_ns[i] = now.path_ns;
  }
  std::vector<uint64_t> paths_ns(decided.intervals.size());
  for (size_t i = 0; i < paths_ns.size(); ++i) {
    paths_ns[i] = reached[i].path_ns + decided.intervals[i].cpu_ns() - reached[i].at_ns;
  }
  return paths_ns;
}

namespace {

// The most intervals that one unit has in the set.
uint32_t multiplicity(const Decided& decided, const std::vector<Member>& members) {
  std::unordered_map<uint32_t, uint32_t> counts;
  uint32_t most = 0;
  for (const Member& member : members) most = std::max(most, ++counts[decided.intervals[member.interval].unit]);
  return most;
}

}  // namespace

Costs measure(const Execution& execution, const Decided& decided, uint32_t cores, ScheduleKind kind, const Pace& pace) {
  Costs costs;
  const auto paths_ns = critical_paths_ns(execution, decided);
  const size_t count = costs.intervals = paths_ns.size();
  for (const uint64_t path_ns : paths_ns) costs.critical_path_s.add(seconds(path_ns));
  ReplaySets sets(execution, decided);
  Schedule schedule(execution, decided);
  // A stride that visits all intervals, and is evenly spread wherever it stops.
  size_t stride = static_cast<size_t>(static_cast<double>(count) * 0.618) + 1;
  while (std::gcd(stride, count) != 1) ++stride;
  for (size_t k = 0; k < count && sets.visits() < kMostVisits && schedule.visits() < kMostSteps; ++k) {
    const auto interval = static_cast<uint32_t>(k * stride % count);
    const std::vector<Member>& members = sets.find(interval);
    ReplaySums sums{0, seconds(paths_ns[interval])};
    sums.intervals = members.size();
    for (const Member& member : members) {
      sums.work_s += seconds(member.cpu_ns);
      sums.add_restore(decided.intervals[member.interval].restore_s);
      sums.messages += member.needs.size();
    }
    costs.replay_set.add(static_cast<double>(members.size()));
    costs.multiplicity.add(multiplicity(decided, members));
    costs.work_s.add(sums.work_s);
    if (const auto time_ns = schedule.time_ns(kind, cores, members)) {
      costs.makespan_s.add(seconds(*time_ns));
    } else {
      ++costs.deadlocks;
    }
    costs.predicted_s.add(predicted_s(sums, cores, pace));
    ++costs.measured;
  }
  return costs;
}

}  // namespace redrive
