// Random executions, and a brute-force checker that knows every event of them. The tests of policies and planner use it
// as the judge.
#pragma once

#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "logstore/policy/policy.h"
#include "supervisor/plan/plan.h"

namespace redrive::simulation {

// What really happened. Events of all units are in one list, in the order in which they happened: a topological order.
struct World {
  struct Happened {
    UnitId unit = 0;
    EventIndex event = 0;
    IntervalIndex interval = 0;
    uint64_t at_ns = 0;
    std::vector<EventRef> received;  // the senders of what it received
    std::vector<EventRef> unlogged;  // ... if it was not kept
  };
  struct Interval {
    EventIndex first_event = 0, end_event = 0;
    uint64_t cpu_ns = 0;
    bool startable = true;
    bool forced = false;  // by the policy, for the first event
    std::optional<EventRef> birth;
    uint64_t birth_at_ns = 0;
    // The latest end that the policy may expect: T, or what it asks for; a new one after each checkpoint that is
    // skipped.
    std::vector<uint64_t> dues_ns;
    uint64_t late_ns(size_t due) const { return cpu_ns - std::min(cpu_ns, dues_ns[due]); }
    uint64_t late_ns() const { return cpu_ns - std::min(cpu_ns, *std::min_element(dues_ns.begin(), dues_ns.end())); }
  };
  // A decision of the policy, and its circumstances.
  struct Decided {
    size_t before = 0;  // events that had happened
    UnitId unit = 0;
    uint64_t at_ns = 0;
    std::vector<EventRef> senders;
    bool kept = false;
    uint64_t bytes = 0;
    IntervalIndex interval = 0;
    size_t due = 0;  // place of the due time that was known, in the interval's dues_ns
  };
  std::vector<Happened> events;
  std::map<UnitId, std::vector<Interval>> units;
  std::vector<Decided> decisions;
  std::map<EventRef, uint64_t> at_ns;  // by event
  std::map<UnitId, EventRef> forks;    // of each unit that was born
  size_t forced = 0;                   // checkpoints that the policy forced
  size_t skipped = 0;                  // checkpoints that were due
  size_t told_late = 0;                // events that were told when their unit had gone on
  size_t unsettled = 0;                // receives that were to be decided later, but were not
  bool forks_listed = true;            // forks are dependences of the graph too, so their times are known
  PolicyParameters limits;

  size_t late() const {  // checkpoints
    size_t count = 0;
    for (const auto& [unit, intervals] : units) {
      for (const Interval& interval : intervals) count += interval.late_ns() > 0;
    }
    return count;
  }
  size_t kept() const {
    return static_cast<size_t>(
        std::count_if(decisions.begin(), decisions.end(), [](const Decided& d) { return d.kept; }));
  }
};

// Makes a random execution, and asks the policy as the recorder does; if it can force checkpoints, as evaluation does.
// A disturbed execution has what happens while a program is recorded: checkpoints come late or are skipped, and units
// go on, and are asked for checkpoints, before their latest events are told.
class Simulation {
 public:
  Simulation(uint64_t seed, bool images_fail, bool late = false)
      : random_(seed), images_fail_(images_fail), late_(late) {
    world_.limits.checkpoint_period_ns = 20 + below(200);
    world_.limits.critical_path_ns = world_.limits.checkpoint_period_ns * (4 + below(13)) / 4;
    world_.limits.set_bound = static_cast<uint32_t>(1 + below(12));
    world_.limits.multiplicity = static_cast<uint32_t>(1 + below(3));
    world_.limits.approximate = below(2) != 0;
    world_.limits.cores = static_cast<uint32_t>(1 + below(6));
    world_.forks_listed = below(3) != 0;
    talkative_ = below(2) != 0;
    pace_ = 1 + below(2) * below(12);
    grants_ = below(2) != 0;
  }

  PolicyParameters& limits() { return world_.limits; }
  void force_checkpoints() { forces_ = true; }
  void disturb() {
    late_ = below(2) != 0;
    skips_ = below(2) != 0;
    batches_ = below(2) != 0;
  }

  World run(Policy& policy) {
    policy_ = &policy;
    for (uint64_t i = 2 + below(5); i > 0; --i) begin_unit();
    for (uint64_t i = 0; i < units_.size() * 2; ++i) channels_.push_back({1 + below(units_.size()), {}});
    if (below(8) == 0) relay();
    const uint64_t turn = 1 + below(2) * below(30);  // steps that a unit makes while the others wait
    UnitId id = 1;
    for (uint64_t steps = 30 + below(talkative_ ? 600 : 250); steps > 0; --steps) {
      if (below(turn) == 0) id = static_cast<UnitId>(1 + below(units_.size()));
      if (!unit_of(id).ended) step(id);
      if (below(100) == 0) end(id);
    }
    for (UnitId unit = 1; unit <= units_.size(); ++unit) end(unit);
    world_.unsettled = later_.size();
    return std::move(world_);
  }

 private:
  struct Unit {
    uint64_t now_ns = 0;           // its clock
    uint64_t at_ns = 0;            // ... at the last event that was told
    std::deque<uint64_t> to_tell;  // ... at its events since then
    EventIndex next_event = 0;
    uint64_t late_ns = 0;        // by which the next checkpoint comes after it is due
    uint64_t not_before_ns = 0;  // that checkpoint, because one was skipped
    bool checkpoint_soon = false;
    bool ended = false;
  };
  struct Message {
    EventRef sender;
    Tag tag;
    uint64_t bytes;
  };
  // A receive that is decided later, or a birth.
  struct Undecided {
    size_t decision;
    std::optional<size_t> event;
    UnitId born = 0;
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
    begin_interval(id);
    return id;
  }

  void end(UnitId id) {
    if (unit_of(id).ended) return;
    tell(id);
    unit_of(id).ended = true;
    unit_of(id).at_ns = unit_of(id).now_ns;
    end_interval(id);
    policy_->on_end(id, unit_of(id).at_ns);
    settle();
  }

  void settle() {
    for (const auto& settled : policy_->on_settle()) {
      const Undecided undecided = later_.at(settled.ticket);
      later_.erase(settled.ticket);
      world_.decisions[undecided.decision].kept = settled.keep;
      if (!settled.keep) continue;
      if (undecided.event) world_.events[*undecided.event].unlogged.clear();
      if (undecided.born) world_.units.at(undecided.born).front().birth.reset();
    }
  }

  void end_interval(UnitId id) {
    interval_of(id).end_event = unit_of(id).next_event;
    interval_of(id).cpu_ns = unit_of(id).at_ns;
  }

  void checkpoint(UnitId id) {
    tell(id);
    Unit& unit = unit_of(id);
    unit.at_ns = unit.now_ns;
    end_interval(id);
    const EventIndex first = unit.next_event;
    World::Interval& begun = world_.units[id].emplace_back();
    begun.first_event = begun.end_event = first;
    begun.startable = !images_fail_ || below(3) != 0;
    unit.now_ns = 0;
    const uint64_t ended_ns = std::exchange(unit.at_ns, 0);
    unit.checkpoint_soon = false;
    policy_->on_checkpoint(id, ended_ns);
    settle();
    begin_interval(id);
  }

  void begin_interval(UnitId id) {
    const uint64_t period_ns = world_.limits.checkpoint_period_ns;
    interval_of(id).dues_ns = {period_ns};
    unit_of(id).late_ns = late_ ? below(below(3) == 0 ? period_ns : period_ns / 8 + 1) : 0;
    unit_of(id).not_before_ns = 0;
  }

  // When the policy and T want the next checkpoint. The policy asks an eighth of T early.
  uint64_t due_ns(UnitId id) {
    const uint64_t by_ns = policy_->checkpoint_by_ns(id), period_ns = world_.limits.checkpoint_period_ns;
    if (by_ns >= period_ns) return period_ns;
    uint64_t& latest_ns = interval_of(id).dues_ns.back();
    latest_ns = std::min(latest_ns, by_ns + period_ns / 8);
    return by_ns;
  }

  // Unless it is skipped.
  void checkpoint_now(UnitId id) {
    if (!skips_ || below(4) != 0) return checkpoint(id);
    ++world_.skipped;
    Unit& unit = unit_of(id);
    unit.checkpoint_soon = false;
    unit.not_before_ns = unit.now_ns + 1 + below(world_.limits.checkpoint_period_ns / 2);
    interval_of(id).dues_ns.push_back(std::max(world_.limits.checkpoint_period_ns, unit.not_before_ns));
    policy_->on_skipped(id, unit.not_before_ns);
    due_ns(id);
  }

  // Computes for a while. Checkpoints come at T at the latest, sometimes sooner, and sometimes immediately again.
  void compute(UnitId id) {
    const uint64_t period_ns = world_.limits.checkpoint_period_ns;
    uint64_t more_ns = below(period_ns / (1 + below(8 * pace_)) + 1);
    if (below(20 * pace_) == 0 || unit_of(id).checkpoint_soon) checkpoint_now(id);
    spend(id, more_ns);
    if (grants_ && policy_->wants_checkpoint(id, unit_of(id).now_ns)) checkpoint_now(id);
  }

  void spend(UnitId id, uint64_t more_ns) {
    for (;;) {
      const uint64_t due = due_ns(id);
      Unit& unit = unit_of(id);
      const uint64_t until_ns = std::max({unit.now_ns, due + unit.late_ns, unit.not_before_ns});
      if (unit.now_ns + more_ns <= until_ns) break;
      more_ns -= until_ns - unit.now_ns;
      unit.now_ns = until_ns;
      checkpoint_now(id);
    }
    unit_of(id).now_ns += more_ns;
  }

  EventRef happen(UnitId id, std::vector<EventRef> received, bool kept) {
    Unit& unit = unit_of(id);
    const EventRef ref{id, unit.next_event++};
    if (undecided_) later_.at(*std::exchange(undecided_, std::nullopt)).event = world_.events.size();
    world_.events.push_back({id, ref.event, static_cast<IntervalIndex>(world_.units[id].size() - 1), unit.at_ns,
                             received, kept ? std::vector<EventRef>() : received});
    world_.at_ns[ref] = unit.at_ns;
    return ref;
  }

  bool decide(UnitId id, const std::vector<EventRef>& senders, const Tag& tag, uint64_t bytes, bool birth) {
    auto decision = policy_->on_receive(id, unit_of(id).at_ns, tag, bytes);
    if (decision.force_checkpoint_first && forces_ && !batches_) {
      ++world_.forced;
      if (birth) {
        policy_->on_checkpoint(id);  // nothing has happened in its interval
      } else {
        checkpoint(id);
      }
      interval_of(id).forced = true;
      decision = policy_->on_receive(id, unit_of(id).at_ns, tag, bytes);
    }
    if (decision.force_checkpoint_first) {
      unit_of(id).checkpoint_soon = true;
      policy_->on_kept(id, tag);
    }
    due_ns(id);
    if (decision.keep == Keep::later) {
      undecided_ = decision.ticket;
      later_[decision.ticket] = {world_.decisions.size(), std::nullopt, birth ? id : 0};
    }
    const bool kept = decision.keep == Keep::keep;
    const auto interval = static_cast<IntervalIndex>(world_.units[id].size() - 1);
    world_.decisions.push_back({world_.events.size(), id, unit_of(id).at_ns, senders, kept, bytes, interval,
                                interval_of(id).dues_ns.size() - 1});
    return kept;
  }

  struct Taken {
    std::vector<EventRef> senders;
    bool kept = false;
  };

  // Takes bytes of up to three sends; of the last one possibly not all.
  Taken take(UnitId id, Channel& channel) {
    Taken taken;
    Tag tag;
    uint64_t bytes = 0;
    for (uint64_t sends = 1 + below(3); sends > 0 && !channel.messages.empty(); --sends) {
      const Message& message = channel.messages.front();
      taken.senders.push_back(message.sender);
      tag = taken.senders.size() == 1 ? message.tag : join(tag, message.tag);
      bytes += message.bytes;
      if (sends == 1 && below(4) == 0) break;
      channel.messages.pop_front();
    }
    taken.kept = decide(id, taken.senders, tag, bytes, false);
    return taken;
  }

  void fork(UnitId parent) {
    const Tag tag = policy_->on_send(parent, unit_of(parent).at_ns, 0);
    const EventRef ref = happen(parent, {}, false);
    const UnitId child = begin_unit();
    world_.forks[child] = ref;
    channels_.push_back({child, {}});
    if (decide(child, {ref}, tag, 0, true)) return;
    undecided_.reset();
    interval_of(child).birth = ref;
    interval_of(child).birth_at_ns = unit_of(parent).at_ns;
  }

  // A channel that has something for the unit, if there is one.
  Channel& channel_to(UnitId id) {
    std::vector<size_t> full;
    for (size_t i = 0; i < channels_.size(); ++i) {
      if (channels_[i].receiver == id && !channels_[i].messages.empty()) full.push_back(i);
    }
    return channels_[full.empty() ? 0 : full[below(full.size())]];
  }

  void send(UnitId id, Channel& out, Taken taken) {
    const uint64_t bytes = uint64_t{1} << below(16);
    const Tag tag = policy_->on_send(id, unit_of(id).at_ns, bytes);
    const EventRef sender = happen(id, std::move(taken.senders), taken.kept);
    out.messages.push_back({sender, tag, bytes});
  }

  void receive_all(UnitId id, Channel& in) {
    while (!in.messages.empty()) {
      Taken taken = take(id, in);
      happen(id, std::move(taken.senders), taken.kept);
    }
  }

  // Units work one after the other, each for most of T; then all send to all. These are the longest replays that
  // receiving before one's own work can cause.
  void relay() {
    std::vector<Channel> to;
    for (UnitId id = 1; id <= units_.size(); ++id) to.push_back({id, {}});
    for (uint64_t rounds = 2 + below(3); rounds > 0; --rounds) {
      for (UnitId id = 1; id <= units_.size(); ++id) {
        receive_all(id, to[id - 1]);
        const uint64_t most_ns = world_.limits.checkpoint_period_ns - world_.limits.checkpoint_period_ns / 8;
        spend(id, most_ns - std::min(most_ns, unit_of(id).now_ns));
        unit_of(id).at_ns = unit_of(id).now_ns;
        send(id, to[id % units_.size()], {});
      }
      for (int twice = 0; twice < 2; ++twice) {
        for (UnitId id = 1; id <= units_.size(); ++id) {
          for (Channel& other : to) send(id, other, {});
        }
        for (UnitId id = 1; id <= units_.size(); ++id) receive_all(id, to[id - 1]);
      }
      for (UnitId id = 1; id <= units_.size(); ++id) checkpoint(id);
    }
  }

  void step(UnitId id) {
    compute(id);
    unit_of(id).to_tell.push_back(unit_of(id).now_ns);
    if (!batches_ || below(4) == 0) tell(id);
  }

  void tell(UnitId id) {
    for (Unit& unit = unit_of(id); !unit.to_tell.empty();) {
      unit.at_ns = unit.to_tell.front();
      unit.to_tell.pop_front();
      world_.told_late += unit.at_ns < unit.now_ns;
      act(id);
    }
  }

  void act(UnitId id) {
    if (below(30) == 0 && units_.size() < 12) return fork(id);
    Channel& in = talkative_ ? channel_to(id) : channels_[below(channels_.size())];
    Channel& out = channels_[below(channels_.size())];
    const uint64_t what = below(10);
    const bool receives = what < 5 && in.receiver == id && !in.messages.empty();
    const bool sends = what >= 4 && what < 9;  // 4: both in one event, as splice(2) does
    Taken taken;
    if (receives) taken = take(id, in);
    if (!sends) return void(happen(id, std::move(taken.senders), taken.kept));
    send(id, out, std::move(taken));
  }

  std::mt19937_64 random_;
  bool images_fail_;
  bool forces_ = false;
  bool late_;             // checkpoints come up to T late
  bool skips_ = false;    // ... and some do not come when they are due
  bool batches_ = false;  // events are told later
  bool talkative_;        // units receive whenever they can
  bool grants_;           // checkpoints are taken where the policy only wishes for one
  uint64_t pace_;         // roughly how many events there are in an eighth of T
  World world_;
  Policy* policy_ = nullptr;
  std::deque<Unit> units_;
  std::vector<Channel> channels_;
  std::map<uint64_t, Undecided> later_;  // by ticket
  std::optional<uint64_t> undecided_;    // the receive that has no event yet
};

// Brute force over events. Every event belongs to one run: the execution from the latest interval, at or before its
// own, that can be started from. It knows only dependences between events, none between intervals.
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

  // CPU time from the start of the run to a point of an interval.
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

  // For every run, one past the last event to execute, in order to bring run `wanted` up to, but not including,
  // `until`.
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

// The checks return nothing if all is well, and otherwise what is wrong.
using Complaint = std::optional<std::string>;

inline std::string at(UnitId unit, IntervalIndex interval, const std::string& what) {
  return "interval " + std::to_string(unit) + ":" + std::to_string(interval) + ": " + what;
}

// The promise of critical-path, as users see it. A late checkpoint delays its own interval by as much, and no other;
// messages that are received after a checkpoint was skipped do not count with the time that was then expected.
inline Complaint check_bound(const World& world) {
  const EventGraph events(world);
  const auto paths = events.paths(world.events.size());
  for (const auto& [unit, intervals] : world.units) {
    for (IntervalIndex i = 0; i < intervals.size(); ++i) {
      const uint64_t path_ns = events.critical_path(paths, unit, i);
      if (path_ns > world.limits.critical_path_ns + intervals[i].late_ns()) {
        return at(unit, i, "critical path " + std::to_string(path_ns) + " exceeds C");
      }
    }
  }
  for (const auto& decided : world.decisions) {
    if (decided.kept) continue;
    const auto& interval = world.units.at(decided.unit)[decided.interval];
    for (const auto& sender : decided.senders) {
      const uint64_t path_ns = paths[events.position(sender)] + interval.cpu_ns - decided.at_ns;
      if (path_ns > world.limits.critical_path_ns + interval.late_ns(decided.due)) {
        return at(decided.unit, decided.interval, "received path of " + std::to_string(path_ns) + " exceeds C");
      }
    }
  }
  return std::nullopt;
}

#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kSeeds = 100;
#else
constexpr uint64_t kSeeds = 400;
#endif

inline void for_each_seed(uint64_t count, const std::function<void(uint64_t)>& run) {
  if (const char* only = std::getenv("REDRIVE_SEED")) return run(std::strtoull(only, nullptr, 10));
  for (uint64_t seed = 1; seed <= count; ++seed) run(seed);
}

inline std::string again(uint64_t seed, const Complaint& complaint) {
  const std::string number = std::to_string(seed);
  return "seed " + number + ": " + complaint.value_or("") + " (again: REDRIVE_SEED=" + number + ")";
}

// Whether `check` complains about some execution.
inline bool complains(const std::function<Complaint(uint64_t)>& check) {
  for (uint64_t seed = 1; seed <= 10 * kSeeds; ++seed) {
    if (check(seed)) return true;
  }
  return false;
}

}  // namespace redrive::simulation
