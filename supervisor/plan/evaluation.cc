#include "supervisor/plan/evaluation.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <queue>
#include <random>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace redrive {
namespace {

using What = Execution::What;
using Step = Execution::Step;

// Replay sets are built until they have this many dependences in total, which takes a few seconds.
constexpr uint64_t kMostVisits = 5'000'000;

// Feeds an execution to a policy.
class Deciding {
 public:
  Deciding(const Execution& execution, Policy& policy, const PolicyParameters& parameters, const Placement& placement)
      : execution_(execution),
        policy_(policy),
        period_ns_(parameters.checkpoint_period_ns),
        placement_(placement),
        random_(placement.seed),
        units_(execution.units),
        last_use_(execution.steps.size()),
        tags_(execution.steps.size()) {
    out_.interval_of.resize(execution.steps.size());
    out_.kept.resize(execution.steps.size());
    for (uint32_t i = 0; i < execution.steps.size(); ++i) {
      for (const uint32_t sender : senders(execution.steps[i])) last_use_[sender] = i;
    }
    if (placement.lengths_known) ends_ = recorded_ends();
  }

  Decided run() {
    for (uint32_t i = 0; i < execution_.steps.size(); ++i) {
      const Step& step = execution_.steps[i];
      take_due_checkpoints(step);
      if (step.what == What::program || step.what == What::birth) begin_program(step);
      if (step.what == What::checkpoint && placement_.recorded) checkpoint(step.unit, step.at_ns, step.restore_s);
      if (step.what == What::send) tags_[i] = policy_.on_send(step.unit, at_ns(step), step.bytes);
      if ((step.what == What::receive || step.what == What::birth) && step.sender_count > 0) receive(i, step);
      out_.interval_of[i] = units_[step.unit].interval;
      if (step.what == What::end) end(step);
    }
    CHECK(later_.empty());
    return std::move(out_);
  }

 private:
  struct Unit {
    uint32_t interval = 0;  // index of the current interval
    size_t intervals = 0;   // how many intervals have begun
    bool began = false;
    uint64_t due_ns = UINT64_MAX;
    double restore_s = 0;
  };

  std::span<const uint32_t> senders(const Step& step) const {
    return std::span(execution_.senders).subspan(step.first_sender, step.sender_count);
  }

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

  void take_due_checkpoints(const Step& step) {
    const Unit& unit = units_[step.unit];
    if (placement_.recorded || !unit.began) return;
    while (due_ns(step.unit) < step.at_ns) checkpoint(step.unit, due_ns(step.unit), unit.restore_s);
    const bool last = step.what == What::end;  // nothing would follow the checkpoint
    if (!last && policy_.wants_checkpoint(step.unit, at_ns(step))) checkpoint(step.unit, step.at_ns, unit.restore_s);
  }

  uint64_t due_ns(uint32_t id) const {
    const Unit& unit = units_[id];
    const uint64_t by_ns = policy_.checkpoint_by_ns(id);
    return by_ns == UINT64_MAX ? unit.due_ns : std::min(unit.due_ns, out_.intervals[unit.interval].start_ns + by_ns);
  }

  void begin_program(const Step& step) {
    begin_interval(step.unit, step.at_ns, step.restore_s);
    if (placement_.recorded || period_ns_ == 0) return;
    const uint64_t most_ns = placement_.skew_ns > 0 ? std::min(placement_.skew_ns, period_ns_) : period_ns_;
    units_[step.unit].due_ns = step.at_ns + (placement_.skew_ns > 0 ? 1 + random_() % most_ns : most_ns);
  }

  void checkpoint(uint32_t unit, uint64_t at_ns, double restore_s) {
    ++out_.checkpoints;
    begin_interval(unit, at_ns, restore_s);
    if (!placement_.recorded) units_[unit].due_ns = at_ns + period_ns_;
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
    out_.intervals.push_back({id, at_ns, at_ns, std::nullopt, restore_s});
    policy_.on_checkpoint(id, ended_ns);
    if (const auto end = placement_.lengths_known ? recorded_end(id, unit.intervals, at_ns) : std::nullopt) {
      policy_.on_length_known(id, *end - at_ns);
    }
    ++unit.intervals;
    settle();
  }

  void receive(uint32_t i, const Step& step) {
    Tag tag = tags_[senders(step).front()];
    for (const uint32_t sender : senders(step)) {
      tag = join(tag, tags_[sender]);
      if (last_use_[sender] == i) tags_[sender] = {};
    }
    auto decision = policy_.on_receive(step.unit, at_ns(step), tag, step.bytes);
    if (decision.force_checkpoint_first && !placement_.forced) {
      policy_.on_kept(step.unit, tag);
    } else if (decision.force_checkpoint_first) {
      if (step.what == What::birth) {
        policy_.on_checkpoint(step.unit);  // nothing has happened in its interval
      } else {
        ++out_.forced_checkpoints;
        checkpoint(step.unit, step.at_ns, units_[step.unit].restore_s);
      }
      decision = policy_.on_receive(step.unit, at_ns(step), tag, step.bytes);
    }
    if (decision.keep == Keep::later) later_[decision.ticket] = {i, units_[step.unit].interval};
    set_kept(i, units_[step.unit].interval, decision.keep == Keep::keep);
  }

  void set_kept(uint32_t i, uint32_t interval, bool kept) {
    const Step& step = execution_.steps[i];
    out_.kept[i] = kept;
    if (step.what != What::birth) return;
    if (kept) {
      out_.intervals[interval].birth.reset();
    } else {
      out_.intervals[interval].birth = senders(step).front();
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
  const Placement placement_;
  std::mt19937_64 random_;
  std::vector<Unit> units_;
  std::vector<std::vector<uint64_t>> ends_;                            // recorded_ends(), if the policy is told
  std::vector<uint32_t> last_use_;                                     // by send: the step that receives its last bytes
  std::vector<Tag> tags_;                                              // by step
  std::unordered_map<uint64_t, std::pair<uint32_t, uint32_t>> later_;  // by ticket: step, interval
  Decided out_;
};

// Simulates runs that continue as long as they can. A run that waits gives its core to the one that has been ready
// longest.
class Schedule {
 public:
  Schedule(const Execution& execution, const Decided& decided, uint32_t cores)
      : execution_(execution), decided_(decided), cores_(cores), done_(execution.steps.size()) {}

  struct Member {
    uint32_t interval;
    uint64_t cpu_ns;
    std::span<const uint32_t> needs;  // its receives that must be served
  };

  // Returns the time when all of them have been executed.
  uint64_t run(const std::vector<Member>& members) {
    begin(members);
    uint64_t now_ns = 0;
    for (;;) {
      while (running_.size() < cores_ && !ready_.empty()) {
        start(ready_.front(), now_ns);
        ready_.pop_front();
      }
      if (running_.empty()) return now_ns;
      const auto [at_ns, run] = running_.top();
      running_.pop();
      now_ns = at_ns;
      if (pass(run)) start(run, now_ns);
    }
  }

 private:
  struct Run {
    size_t next = 0, end = 0;  // points that it must pass
    uint64_t reached_ns = 0;
    uint64_t cpu_ns = 0;
    uint64_t start_ns = 0;  // of its interval
    bool finished = false;
  };
  using Finish = std::pair<uint64_t, uint32_t>;  // when, run

  void begin(const std::vector<Member>& members) {
    for (const uint32_t send : sends_) done_[send] = false;
    sends_.clear();
    points_.clear();
    runs_.clear();
    waiters_.clear();
    for (const Member& member : members) {
      for (const uint32_t receive : member.needs) {
        points_.push_back(point(member.interval, receive));
        for (const uint32_t sender : senders(receive)) add_send(sender);
      }
      if (const auto birth = decided_.intervals[member.interval].birth) add_send(*birth);
    }
    std::sort(points_.begin(), points_.end());
    points_.erase(std::unique(points_.begin(), points_.end()), points_.end());
    for (const Member& member : members) {
      const auto first = std::lower_bound(points_.begin(), points_.end(), point(member.interval, 0));
      const auto last = std::lower_bound(first, points_.end(), point(member.interval + 1, 0));
      const auto number = static_cast<uint32_t>(runs_.size());
      runs_.push_back({static_cast<size_t>(first - points_.begin()), static_cast<size_t>(last - points_.begin()), 0,
                       member.cpu_ns, decided_.intervals[member.interval].start_ns});
      if (const auto birth = decided_.intervals[member.interval].birth) {
        waiters_[*birth].push_back(number);
      } else {
        ready_.push_back(number);
      }
    }
  }

  static uint64_t point(uint32_t interval, uint32_t step) { return uint64_t{interval} << 32 | step; }
  std::span<const uint32_t> senders(uint32_t receive) const {
    const Step& step = execution_.steps[receive];
    return std::span(execution_.senders).subspan(step.first_sender, step.sender_count);
  }
  void add_send(uint32_t send) {
    points_.push_back(point(decided_.interval_of[send], send));
    sends_.push_back(send);
  }

  void start(uint32_t number, uint64_t now_ns) {
    Run& run = runs_[number];
    uint64_t to_ns = run.cpu_ns;
    if (run.next < run.end) to_ns = execution_.steps[static_cast<uint32_t>(points_[run.next])].at_ns - run.start_ns;
    running_.emplace(now_ns + to_ns - run.reached_ns, number);
    run.reached_ns = to_ns;
  }

  // Whether the run continues at once.
  bool pass(uint32_t number) {
    Run& run = runs_[number];
    if (run.next == run.end) return false;
    const auto step = static_cast<uint32_t>(points_[run.next]);
    if (execution_.steps[step].what == What::send) {
      done_[step] = true;
      if (const auto waiting = waiters_.find(step); waiting != waiters_.end()) {
        for (const uint32_t waiter : waiting->second) wake(waiter);
      }
    } else if (const auto missing = missing_of(step)) {
      waiters_[*missing].push_back(number);
      return false;
    }
    ++run.next;
    return true;
  }

  std::optional<uint32_t> missing_of(uint32_t receive) const {
    for (const uint32_t sender : senders(receive)) {
      if (!done_[sender]) return sender;
    }
    return std::nullopt;
  }

  // The run checks again, without computing: at a receive that it has reached already, or at its birth.
  void wake(uint32_t number) { ready_.push_back(number); }

  const Execution& execution_;
  const Decided& decided_;
  const uint32_t cores_;
  std::vector<bool> done_;        // by step: sends
  std::vector<uint32_t> sends_;   // sends whose flags in done_ may be set
  std::vector<uint64_t> points_;  // sorted by interval and step
  std::vector<Run> runs_;
  std::deque<uint32_t> ready_;
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> running_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> waiters_;  // by send
};

// An execution's dependences by interval, and buffers that are reused for building replay sets.
class Measuring {
 public:
  Measuring(const Execution& execution, const Decided& decided)
      : execution_(execution), decided_(decided), needs_(decided.intervals.size()), reach_(decided.intervals.size()) {
    for (uint32_t i = 0; i < execution.steps.size(); ++i) {
      const Step& step = execution.steps[i];
      if (step.what != What::receive || step.sender_count == 0 || decided.kept[i]) continue;
      needs_[decided.interval_of[i]].push_back(i);
    }
  }

  // Builds the replay set of an interval: `reach` says how much is needed of each member.
  void build(uint32_t wanted) {
    for (const uint32_t member : members_) reach_[member] = {};
    members_.clear();
    extend(wanted, decided_.intervals[wanted].cpu_ns());
    for (size_t done = 0; done < todo_.size(); ++done) {
      Reach& reach = reach_[todo_[done]];
      reach.queued = false;
      const auto& needs = needs_[todo_[done]];
      for (; reach.scanned < needs.size() && needs[reach.scanned] < reach.end_step; ++reach.scanned) {
        ++visits;
        const Step& step = execution_.steps[needs[reach.scanned]];
        for (uint32_t k = 0; k < step.sender_count; ++k) need(execution_.senders[step.first_sender + k]);
      }
    }
    todo_.clear();
  }

  std::vector<Schedule::Member> members() const {
    std::vector<Schedule::Member> out;
    for (const uint32_t member : members_) {
      const Reach& reach = reach_[member];
      out.push_back({member, reach.cpu_ns, std::span(needs_[member]).first(reach.scanned)});
    }
    return out;
  }
  uint64_t work_ns() const {
    uint64_t sum_ns = 0;
    for (const uint32_t member : members_) sum_ns += reach_[member].cpu_ns;
    return sum_ns;
  }
  std::pair<double, double> restore_s() const {  // sum, longest
    std::pair<double, double> out;
    for (const uint32_t member : members_) {
      out.first += decided_.intervals[member].restore_s;
      out.second = std::max(out.second, decided_.intervals[member].restore_s);
    }
    return out;
  }

  uint64_t visits = 0;

 private:
  struct Reach {
    bool member = false;
    bool queued = false;
    uint32_t end_step = 0;  // one past the last step needed
    size_t scanned = 0;     // how many needs were examined
    uint64_t cpu_ns = 0;
  };

  void need(uint32_t send) {
    const uint32_t interval = decided_.interval_of[send];
    const uint64_t at_ns = execution_.steps[send].at_ns - decided_.intervals[interval].start_ns;
    extend(interval, at_ns, send + 1);
  }

  void extend(uint32_t interval, uint64_t cpu_ns, uint32_t end_step = UINT32_MAX) {
    Reach& reach = reach_[interval];
    if (!reach.member) {
      reach.member = true;
      members_.push_back(interval);
      if (decided_.intervals[interval].birth) need(*decided_.intervals[interval].birth);
    }
    Reach& again = reach_[interval];
    again.cpu_ns = std::max(again.cpu_ns, cpu_ns);
    if (end_step <= again.end_step) return;
    again.end_step = end_step;
    if (!again.queued) {
      again.queued = true;
      todo_.push_back(interval);
    }
  }

  const Execution& execution_;
  const Decided& decided_;
  std::vector<std::vector<uint32_t>> needs_;  // by interval: its receives that were not kept
  std::vector<Reach> reach_;                  // by interval
  std::vector<uint32_t> members_;
  std::vector<uint32_t> todo_;
};

}  // namespace

Decided decide(const Execution& execution, Policy& policy, const PolicyParameters& parameters,
               const Placement& placement) {
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
      for (uint32_t k = 0; k < step.sender_count; ++k) {
        now.path_ns = std::max(now.path_ns, path_ns[execution.senders[step.first_sender + k]]);
      }
    }
    path_ns[i] = now.path_ns;
  }
  std::vector<uint64_t> paths_ns(decided.intervals.size());
  for (size_t i = 0; i < paths_ns.size(); ++i) {
    paths_ns[i] = reached[i].path_ns + decided.intervals[i].cpu_ns() - reached[i].at_ns;
  }
  return paths_ns;
}

Costs measure(const Execution& execution, const Decided& decided, uint32_t cores) {
  constexpr double kNs = 1e-9;
  Costs costs;
  const auto paths_ns = critical_paths_ns(execution, decided);
  const size_t count = costs.intervals = paths_ns.size();
  for (const uint64_t path_ns : paths_ns) costs.critical_path_s.add(static_cast<double>(path_ns) * kNs);
  Measuring sets(execution, decided);
  Schedule schedule(execution, decided, cores);
  // A stride that visits all intervals, and is evenly spread wherever it stops.
  size_t stride = static_cast<size_t>(static_cast<double>(count) * 0.618) + 1;
  while (std::gcd(stride, count) != 1) ++stride;
  for (size_t k = 0; k < count && sets.visits < kMostVisits; ++k) {
    const auto interval = static_cast<uint32_t>(k * stride % count);
    const double path_s = static_cast<double>(paths_ns[interval]) * kNs;
    sets.build(interval);
    const double work_s = static_cast<double>(sets.work_ns()) * kNs, share = 1.0 / cores;
    const auto [restores_s, longest_restore_s] = sets.restore_s();
    costs.replay_set.add(static_cast<double>(sets.members().size()));
    costs.work_s.add(work_s);
    costs.makespan_s.add(static_cast<double>(schedule.run(sets.members())) * kNs);
    costs.predicted_s.add((work_s + restores_s) * share + (path_s + longest_restore_s) * (1 - share));
    ++costs.measured;
  }
  return costs;
}

}  // namespace redrive
