// The unit of planning is a run: one execution from a checkpoint, through any intervals that cannot be started from, up
// to its requisite event. Everything that is needed from one checkpoint shares a run; runs of the same unit are
// independent of each other.
//
// State is kept per run and per needed dependence, never per event, and every lookup is a binary search. So a plan
// costs O(d log d) for d reached dependences, whatever the size of the trace.
#include "supervisor/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "base/assert.h"

namespace redrive {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

using Intervals = std::vector<Rdg::Interval>;
using Dependences = std::vector<Rdg::Dependence>;

std::optional<IntervalIndex> find_interval(const Intervals& intervals, EventIndex event) {
  const auto after =
      std::upper_bound(intervals.begin(), intervals.end(), event,
                       [](EventIndex at, const Rdg::Interval& interval) { return at < interval.first_event; });
  if (after == intervals.begin() || event >= (after - 1)->end_event) return std::nullopt;
  return static_cast<IntervalIndex>(after - intervals.begin() - 1);
}

// What planning looks up about a unit, by interval.
struct UnitIndex {
  const Intervals* intervals = nullptr;
  const Dependences* unlogged = nullptr;
  std::vector<IntervalIndex> start;  // where a run through it begins; kNone: nowhere
  std::vector<uint64_t> before_ns;   // the run's CPU time before the interval
  std::vector<uint32_t> run;         // by start: its run
};

// A dependence of a run, or its birth.
struct Need {
  EventIndex receiver = 0;
  uint64_t receiver_at_ns = 0;  // since the run's start; ascends
  uint32_t sender_run = kNone;
  EventIndex sender = 0;
  uint64_t sender_at_ns = 0;  // since the sending run's start
  uint64_t delay_ns = 0;  // how long this need and those before it delay the run, if every run has its own processor
};

struct Run {
  UnitId unit = 0;
  IntervalIndex start = 0;
  IntervalIndex last = 0;    // the last interval in which it is needed
  EventIndex end_event = 0;  // one past its requisite event
  uint64_t cpu_ns = 0;       // time of the latest point that is known to be needed
  size_t next_unlogged = 0;  // the unit's first dependence that was not examined
  std::vector<Need> needs;   // sorted by receiver
  size_t timed = 0;          // how many needs have a known delay_ns
  bool queued = false;
  bool waiting = false;  // for the delay of a sender
};

}  // namespace

class Planner::State {
 public:
  explicit State(const Rdg& graph) : graph_(graph) {}

  PlanResult plan(std::span<const PlanRequest> requests) {
    forget_runs();
    for (const PlanRequest& wanted : requests) {
      if (!request(wanted.unit, wanted.interval, wanted.until)) return {std::nullopt, error_};
    }
    if (!reach_fixed_point()) return {std::nullopt, error_};
    Plan plan{requests.front().unit, requests.front().interval, {}, 0, 0};
    for (uint32_t run = 0; run < requests.size(); ++run) {
      if (!time_all(run)) return {std::nullopt, error_};
      plan.critical_path_ns = std::max(plan.critical_path_ns, finish_ns(run));
    }
    for (const Run& run : runs_) {
      plan.replay_set.push_back({run.unit, run.start, run.last, run.end_event, run.cpu_ns, clock_error_ns(run)});
      plan.work_ns += run.cpu_ns;
      plan.messages += run.needs.size();
    }
    std::sort(plan.replay_set.begin() + static_cast<ptrdiff_t>(requests.size()), plan.replay_set.end(),
              [](const PlannedInterval& a, const PlannedInterval& b) {
                return std::pair(a.unit, a.start) < std::pair(b.unit, b.start);
              });
    return {std::move(plan), std::nullopt};
  }

 private:
  // What is left is about the graph.
  void forget_runs() {
    for (const Run& run : runs_) units_.at(run.unit).run[run.start] = kNone;
    runs_.clear();
    queue_.clear();
    error_.reset();
  }

  bool fail(EventRef missing, EventRef needed_by) {
    error_ = PlanError{missing, needed_by};
    return false;
  }

  // Null if the graph has no such unit.
  UnitIndex* index_of(UnitId unit) {
    const auto [at, is_new] = units_.try_emplace(unit);
    UnitIndex& index = at->second;
    if (!is_new) return index.intervals ? &index : nullptr;
    const auto found = graph_.units.find(unit);
    if (found == graph_.units.end()) return nullptr;
    static const Dependences kNoDependences;
    const auto unlogged = graph_.unlogged.find(unit);
    index.intervals = &found->second;
    index.unlogged = unlogged == graph_.unlogged.end() ? &kNoDependences : &unlogged->second;
    index.run.assign(index.intervals->size(), kNone);
    for (IntervalIndex i = 0; i < index.intervals->size(); ++i) {
      const Rdg::Interval& interval = (*index.intervals)[i];
      const bool starts = interval.reachable && (interval.startable || interval.birth);
      const bool joined = interval.reachable && !starts && i > 0;
      index.start.push_back(starts ? i : joined ? index.start[i - 1] : kNone);
      index.before_ns.push_back(joined ? index.before_ns[i - 1] + (*index.intervals)[i - 1].cpu_ns : 0);
    }
    return &index;
  }

  // The CPU time of an event since its interval's checkpoint: exact for an unlogged receive, otherwise interpolated
  // between the nearest ones.
  static uint64_t estimate_ns(const UnitIndex& index, IntervalIndex i, EventIndex event) {
    const Rdg::Interval& interval = (*index.intervals)[i];
    std::pair<EventIndex, uint64_t> before{interval.first_event, 0}, after{interval.end_event, interval.cpu_ns};
    const Dependences& unlogged = *index.unlogged;
    const size_t next = first_at(unlogged, event + 1);
    if (next > 0 && unlogged[next - 1].receiver.event >= interval.first_event) {
      before = {unlogged[next - 1].receiver.event, unlogged[next - 1].receiver_at_ns};
    }
    if (next < unlogged.size() && unlogged[next].receiver.event < interval.end_event) {
      after = {unlogged[next].receiver.event, unlogged[next].receiver_at_ns};
    }
    if (event <= before.first || after.first <= before.first || after.second <= before.second) return before.second;
    const auto more_ns = static_cast<unsigned __int128>(after.second - before.second) * (event - before.first);
    return before.second + static_cast<uint64_t>(more_ns / (after.first - before.first));
  }

  uint32_t run_from(UnitId unit, UnitIndex& index, IntervalIndex start) {
    uint32_t& run = index.run[start];
    if (run == kNone) {
      run = static_cast<uint32_t>(runs_.size());
      const EventIndex first = (*index.intervals)[start].first_event;
      Run& made = runs_.emplace_back();
      made.unit = unit;
      made.start = made.last = start;
      made.end_event = first;
      made.next_unlogged = first_at(*index.unlogged, first);
      enqueue(run);
    }
    return run;
  }

  void enqueue(uint32_t run) {
    if (runs_[run].queued) return;
    runs_[run].queued = true;
    queue_.push_back(run);
  }

  // The run must be executed through the event before `end_event`, which lies in interval `last`.
  void extend(uint32_t id, IntervalIndex last, EventIndex end_event, uint64_t cpu_ns) {
    Run& run = runs_[id];
    run.cpu_ns = std::max(run.cpu_ns, cpu_ns);
    run.last = std::max(run.last, last);
    if (end_event <= run.end_event) return;
    run.end_event = end_event;
    enqueue(id);
  }

  // An interval that is needed whole takes what was measured when it ended.
  uint64_t clock_error_ns(const Run& run) {
    const UnitIndex& index = *index_of(run.unit);
    const Rdg::Interval& last = (*index.intervals)[run.last];
    const uint64_t whole_ns = index.before_ns[run.last] + last.cpu_ns;
    return std::min(last.clock_error_ns, whole_ns - std::min(whole_ns, run.cpu_ns));
  }

  // The requested intervals become the first runs.
  bool request(UnitId unit, IntervalIndex i, std::optional<EventIndex> until) {
    UnitIndex* index = index_of(unit);
    if (!index || i >= index->intervals->size()) return fail({unit, until.value_or(0)}, {unit, until.value_or(0)});
    const Rdg::Interval& interval = (*index->intervals)[i];
    const EventIndex end = until.value_or(interval.end_event);
    if (end < interval.first_event || end > interval.end_event) return fail({unit, end}, {unit, end});
    if (index->start[i] == kNone) {
      const EventRef before{unit, interval.first_event - (interval.first_event > 0)};
      return fail(interval.birth.value_or(before), {unit, interval.first_event});
    }
    uint64_t cpu_ns = interval.cpu_ns;
    if (end < interval.end_event) cpu_ns = end > interval.first_event ? estimate_ns(*index, i, end - 1) : 0;
    extend(run_from(unit, *index, index->start[i]), i, end, index->before_ns[i] + cpu_ns);
    return true;
  }

  // Notes that event `receiver` of `run` needs `sender`, and makes the sender's run long enough.
  bool add_need(uint32_t run, EventIndex receiver, uint64_t receiver_at_ns, EventRef sender,
                std::optional<uint64_t> sender_at_ns) {
    const EventRef needed_by{runs_[run].unit, receiver};
    UnitIndex* index = index_of(sender.unit);
    const auto i = index ? find_interval(*index->intervals, sender.event) : std::nullopt;
    if (!i || index->start[*i] == kNone) return fail(sender, needed_by);
    const uint64_t at_ns =
        index->before_ns[*i] + (sender_at_ns ? *sender_at_ns : estimate_ns(*index, *i, sender.event));
    const uint32_t sender_run = run_from(sender.unit, *index, index->start[*i]);
    extend(sender_run, *i, sender.event + 1, at_ns);
    auto& needs = runs_[run].needs;
    const uint64_t earlier_ns = needs.empty() ? 0 : needs.back().receiver_at_ns;
    needs.push_back({receiver, std::max(earlier_ns, receiver_at_ns), sender_run, sender.event, at_ns, 0});
    return true;
  }

  bool add_birth(uint32_t run) {
    const UnitIndex& index = *index_of(runs_[run].unit);
    const Rdg::Interval& interval = (*index.intervals)[runs_[run].start];
    if (!interval.birth) return true;
    std::optional<uint64_t> at_ns = interval.birth_at_ns;
    for (size_t i = first_at(*index.unlogged, interval.first_event); i < index.unlogged->size(); ++i) {
      const Rdg::Dependence& dependence = (*index.unlogged)[i];
      if (dependence.receiver.event != interval.first_event) break;
      if (dependence.sender == *interval.birth) at_ns = dependence.sender_at_ns;
    }
    return add_need(run, interval.first_event, 0, *interval.birth, at_ns);
  }

  bool reach_fixed_point() {
    while (!queue_.empty()) {
      const uint32_t run = queue_.front();
      queue_.pop_front();
      runs_[run].queued = false;
      if (runs_[run].needs.empty() && !add_birth(run)) return false;
      const UnitIndex& index = *index_of(runs_[run].unit);
      for (size_t& next = runs_[run].next_unlogged; next < index.unlogged->size(); ++next) {
        const Rdg::Dependence& dependence = (*index.unlogged)[next];
        if (dependence.receiver.event >= runs_[run].end_event) break;
        if (dependence.is_kept) continue;
        // If the fork is listed, it is the birth, which only a run that starts there needs. The successor of an empty
        // first interval does not need it, although it also contains event 0.
        if (dependence.sender == index.intervals->front().birth) continue;
        const auto i = find_interval(*index.intervals, dependence.receiver.event);
        const uint64_t before_ns = i ? index.before_ns[*i] : 0;
        if (!add_need(run, dependence.receiver.event, before_ns + dependence.receiver_at_ns, dependence.sender,
                      dependence.sender_at_ns)) {
          return false;
        }
      }
      if (runs_[run].needs.empty()) continue;
      runs_[run].cpu_ns = std::max(runs_[run].cpu_ns, runs_[run].needs.back().receiver_at_ns);
    }
    return true;
  }

  // How many of a run's needs must be met before its event has happened, including those of the event itself.
  static size_t needs_through(const Run& run, EventIndex event) {
    return std::upper_bound(run.needs.begin(), run.needs.end(), event,
                            [](EventIndex at, const Need& need) { return at < need.receiver; }) -
           run.needs.begin();
  }

  // The longest path to the point `at_ns` of a run, after `needs` needs.
  static uint64_t path_ns(const Run& run, size_t needs, uint64_t at_ns) {
    if (needs == 0) return at_ns;
    return std::max(at_ns, run.needs[needs - 1].receiver_at_ns) + run.needs[needs - 1].delay_ns;
  }

  uint64_t finish_ns(uint32_t run) const { return path_ns(runs_[run], runs_[run].needs.size(), runs_[run].cpu_ns); }

  // Computes delay_ns of all needs of `wanted`, and of the needs of their senders that come before. A run that is
  // waiting cannot be needed past the point where it waits, unless an event depends on itself. No execution was like
  // that, so the graph is damaged.
  bool time_all(uint32_t wanted) {
    struct Goal {
      uint32_t run;
      size_t needs;
    };
    std::vector<Goal> stack{{wanted, runs_[wanted].needs.size()}};
    while (!stack.empty()) {
      const auto [id, goal] = stack.back();
      Run& run = runs_[id];
      run.waiting = false;
      if (run.timed >= goal) {
        stack.pop_back();
        continue;
      }
      Need& need = run.needs[run.timed];
      const Run& sender = runs_[need.sender_run];
      const size_t before_send = needs_through(sender, need.sender);
      run.waiting = true;
      if (sender.timed < before_send) {
        if (sender.waiting) return fail({sender.unit, need.sender}, {run.unit, need.receiver});
        stack.push_back({need.sender_run, before_send});
        continue;
      }
      const uint64_t arrival_ns = path_ns(sender, before_send, need.sender_at_ns);
      const uint64_t earlier_ns = run.timed == 0 ? 0 : run.needs[run.timed - 1].delay_ns;
      need.delay_ns = std::max(earlier_ns, arrival_ns - std::min(arrival_ns, need.receiver_at_ns));
      ++run.timed;
    }
    return true;
  }

  const Rdg& graph_;
  std::unordered_map<UnitId, UnitIndex> units_;
  std::deque<Run> runs_;  // those of the requested intervals come first
  std::deque<uint32_t> queue_;
  std::optional<PlanError> error_;
};

Planner::Planner(const Rdg& graph) : state_(std::make_unique<State>(graph)) {}
Planner::~Planner() = default;
PlanResult Planner::plan(std::span<const PlanRequest> requests) { return state_->plan(requests); }
PlanResult Planner::plan(UnitId unit, IntervalIndex interval) {
  const PlanRequest request{unit, interval, std::nullopt};
  return plan({&request, 1});
}

std::optional<IntervalIndex> Rdg::interval_of(EventRef event) const {
  const auto unit = units.find(event.unit);
  if (unit == units.end()) return std::nullopt;
  return find_interval(unit->second, event.event);
}

size_t first_at(const Dependences& unlogged, EventIndex event) {
  return std::lower_bound(unlogged.begin(), unlogged.end(), event,
                          [](const Rdg::Dependence& at, EventIndex wanted) { return at.receiver.event < wanted; }) -
         unlogged.begin();
}

PlanResult plan(const Rdg& graph, UnitId unit, IntervalIndex interval, std::optional<EventIndex> until) {
  const PlanRequest request{unit, interval, until};
  return plan_together(graph, {&request, 1});
}

PlanResult plan_together(const Rdg& graph, std::span<const PlanRequest> requests) {
  ASSERT(!requests.empty());
  return Planner(graph).plan(requests);
}

std::string describe(const PlanError& error) {
  if (error.missing == error.needed_by) {
    return fmt::format("the recorder did not write what leads to event {} of unit {}", error.missing.event,
                       error.missing.unit);
  }
  return fmt::format(
      "event {} of unit {} needs event {} of unit {}, which the trace does not hold, or not what leads to it",
      error.needed_by.event, error.needed_by.unit, error.missing.event, error.missing.unit);
}

}  // namespace redrive
