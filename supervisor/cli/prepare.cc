// redrive prepare: the second and third of four phases (plan/DESIGN.md). A policy decides off line which checkpoints
// and messages a bound needs; what the trace lacks of these is taken from a replay.
#include "supervisor/cli/prepare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/limits.h"
#include "base/notice.h"
#include "base/text.h"
#include "base/units.h"
#include "checkpoint/spawn_cost.h"
#include "interceptors/trapped_instructions.h"
#include "logstore/trace_additions.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/progress.h"
#include "supervisor/cli/shared_options.h"
#include "supervisor/plan/evaluation.h"
#include "supervisor/plan/execution.h"
#include "supervisor/plan/restore_cost.h"
#include "supervisor/plan/tuning.h"
#include "supervisor/replay/replay_set.h"

namespace redrive {
namespace {

using What = Execution::What;
using Checkpoint = std::pair<UnitId, IntervalIndex>;

constexpr double kDefaultBound_s = 10;

// What a trace must hold in addition to what it holds.
struct Missing {
  std::set<Checkpoint> images;
  std::set<EventRef> payloads;
};

// ---- Which checkpoints

// The intervals that must begin with a checkpoint because of the longest allowed CPU time between checkpoints,
// including those that already do.
Result<std::set<Checkpoint>> choose_checkpoints(const Trace& trace, TuningRule rule, const Tuning& tuning) {
  std::set<Checkpoint> chosen;
  double longest_s = 0;
  for (const auto& unit : trace.units()) {
    double since_s = 0;
    for (const auto& interval : trace.intervals(unit.unit)) {
      const double cpu_s = static_cast<double>(interval_extent(trace, unit.unit, interval.interval).cpu_ns) * 1e-9;
      const bool due = interval.kind == CheckpointKind::image && since_s + cpu_s > tuning.period_s;
      if (startable(interval) || due) {
        chosen.emplace(unit.unit, interval.interval);
        since_s = 0;
      }
      since_s += cpu_s;
      longest_s = std::max(longest_s, cpu_s);
    }
  }
  if (longest_s <= tuning.period_s) return chosen;
  constexpr double kMargin = 1.05;  // the measured time of a restore varies
  const double least_s = kMargin * bound_for_period_s(rule, longest_s, tuning.restore_s);
  return Error{
      fmt::format("this bound cannot be kept: it needs a checkpoint every {}, but some of the noted "
                  "checkpoints are {} apart; a bound of {} can be kept",
                  format_duration(tuning.period_s), format_duration(longest_s), format_duration(least_s))};
}

// ---- Which messages

// The execution with these checkpoints and no others.
void keep_checkpoints(const Trace& trace, const std::set<Checkpoint>& chosen, Execution& execution) {
  std::set<EventRef> begins;
  for (const auto& [unit, interval] : chosen) begins.insert({unit, trace.intervals(unit)[interval].first_event});
  for (size_t i = 0; i < execution.steps.size(); ++i) {
    Execution::Step& step = execution.steps[i];
    if (step.what == What::checkpoint && !begins.contains(execution.events[i])) step.what = What::send;  // to nobody
  }
}

Result<std::set<UnitId>> find_units(const Trace& trace, const std::vector<std::string>& texts) {
  std::set<UnitId> units;
  for (const auto& text : texts) {
    ASSIGN_OR_RETURN(const UnitId unit, trace.find_unit(text));
    units.insert(unit);
  }
  return units;
}

// What the policy wants and the trace lacks. `isolated`: a group of units to be replayable without the rest.
Result<Missing> choose(const Trace& trace, const std::set<Checkpoint>& chosen, Policy& policy,
                       const PolicyParameters& parameters, const std::set<UnitId>& isolated) {
  Missing missing;
  for (const auto& [unit, interval] : chosen) {
    const IntervalRecord& record = trace.intervals(unit)[interval];
    if (record.kind == CheckpointKind::image && !record.has_image) missing.images.emplace(unit, interval);
  }
  ASSIGN_OR_RETURN(Execution execution, read_execution(trace));
  keep_checkpoints(trace, chosen, execution);
  Placement placement;
  placement.forced = false;  // the intervals are the recorded ones
  placement.lengths_known = true;
  const Decided decided = decide(execution, policy, parameters, placement);
  for (uint32_t i = 0; i < execution.steps.size(); ++i) {
    const Execution::Step& step = execution.steps[i];
    const EventRef event = execution.events[i];
    const auto senders = std::span(execution.senders).subspan(step.first_sender, step.sender_count);
    const bool from_outside =
        isolated.contains(event.unit) && std::any_of(senders.begin(), senders.end(), [&](uint32_t sender) {
          return !isolated.contains(execution.events[sender].unit);
        });
    if (step.logged || !(decided.kept[i] || from_outside)) continue;
    if (step.what == What::receive) missing.payloads.insert(event);
    if (step.what == What::birth) missing.images.emplace(event.unit, 0);
  }
  return missing;
}

// ---- What has to be executed

// A part of a unit that is executed from one checkpoint, up to the last interval or payload that is missing.
struct Stretch {
  UnitId unit = 0;
  IntervalIndex last = 0;  // interval
  EventIndex until = 0;    // one past the last event
};

std::vector<Stretch> stretches_of(const Trace& trace, const Rdg& graph, const Missing& missing) {
  std::map<Checkpoint, Stretch> by_start;
  const auto need = [&](UnitId unit, IntervalIndex interval, EventIndex until) {
    const auto& intervals = trace.intervals(unit);
    IntervalIndex start = interval;
    while (start > 0 && !startable(intervals[start])) --start;
    Stretch& stretch = by_start[{unit, start}];
    stretch.unit = unit;
    stretch.last = std::max(stretch.last, interval);
    stretch.until = std::max(stretch.until, until);
  };
  for (const auto& [unit, interval] : missing.images) {
    // Its first event is not executed, but the program must reach it.
    need(unit, interval, trace.intervals(unit)[interval].first_event + 1);
  }
  for (const auto& event : missing.payloads) need(event.unit, graph.interval_of(event).value(), event.event + 1);
  std::vector<Stretch> all;
  for (const auto& [start, stretch] : by_start) all.push_back(stretch);
  return all;
}

// Sets of intervals that are independent of each other, each closed under dependences.
Result<std::vector<std::vector<PlannedInterval>>> sets_of(DependenceGraph& graph,
                                                          const std::vector<Stretch>& stretches) {
  std::map<Checkpoint, PlannedInterval> members;
  std::map<Checkpoint, Checkpoint> above;
  const std::function<Checkpoint(Checkpoint)> top = [&](Checkpoint at) {
    return above.at(at) == at ? at : above[at] = top(above.at(at));
  };
  for (const auto& stretch : stretches) {
    ASSIGN_OR_RETURN(const PlanResult planned, graph.plan(stretch.unit, stretch.last, stretch.until));
    if (!planned.plan) {
      return Error{fmt::format("unit {} cannot be re-driven up to event {}: {}", stretch.unit, stretch.until,
                               describe(*planned.error))};
    }
    std::optional<Checkpoint> first;
    for (const auto& member : planned.plan->replay_set) {
      const Checkpoint start{member.unit, member.start};
      above.try_emplace(start, start);
      const auto [known, fresh] = members.try_emplace(start, member);
      if (!fresh && known->second.requisite_event < member.requisite_event) known->second = member;
      if (first) above[top(start)] = top(*first);
      if (!first) first = start;
    }
  }
  std::map<Checkpoint, std::vector<PlannedInterval>> by_top;
  for (const auto& [start, member] : members) by_top[top(start)].push_back(member);
  std::vector<std::vector<PlannedInterval>> sets;
  for (auto& [unused, set] : by_top) sets.push_back(std::move(set));
  return sets;
}

// ---- Taking it

class Taking : public Preparation {
 public:
  Taking(const Missing& missing, TraceAdditions& additions, bool progress)
      : missing_(missing), additions_(additions), progress_(progress) {}

  bool wants_image(UnitId unit, IntervalIndex interval) const override {
    return missing_.images.contains({unit, interval});
  }
  Result<void> add_image(UnitId unit, IntervalIndex interval, const ReadImage& read) override {
    TRY(additions_.add_image(unit, interval, read));
    ++images;
    show();
    return {};
  }
  bool wants_payload(EventRef receiver) const override { return missing_.payloads.contains(receiver); }
  Result<void> add_payload(EventRef receiver, const Bytes& payload) override {
    TRY(additions_.add_payload(receiver, payload));
    ++payloads;
    bytes += payload.size();
    return {};
  }

  void show() const {
    progress_.show(fmt::format("{} of {} images, {} of {} messages", images.load(), missing_.images.size(),
                               payloads.load(), missing_.payloads.size()));
  }

  std::atomic<uint64_t> images = 0;
  std::atomic<uint64_t> payloads = 0;
  std::atomic<uint64_t> bytes = 0;  // of the payloads

 private:
  const Missing& missing_;
  TraceAdditions& additions_;
  const ProgressLine progress_;
};

Result<void> take(const Trace& trace, DependenceGraph& graph, const PrepareOptions& options,
                  const std::vector<std::vector<PlannedInterval>>& sets, Taking& taking) {
  trap_own_instructions();
  const std::vector<int> processors = usable_processors(options.jobs);
  const auto tier = options.in_process ? make_tier() : nullptr;
  const SetRun run{trace, graph, processors, tier.get()};
  for (const auto& set : sets) {
    Plan plan;
    plan.replay_set = set;
    ASSIGN_OR_RETURN(const auto outcomes, run_set(run, plan, [&](size_t) {
                       ReplayerOptions how;
                       how.preparation = &taking;
                       return how;
                     }));
    std::optional<Error> error;
    for (const auto& outcome : outcomes.members) {
      if (!outcome && !error) error = outcome.error();
      if (!outcome || !outcome->divergence) continue;
      const Divergence& d = *outcome->divergence;
      return Error{
          fmt::format("divergence in unit {} ({}), event {}: expected {}, found {}; see `redrive replay {} {}:{}`",
                      d.unit, trace.unit_name(d.unit), d.event, d.expected, d.found, trace.directory(), d.unit,
                      d.interval),
          Status::divergence};
    }
    if (error) return *error;
    taking.show();
  }
  return {};
}

// ---- The command

struct Target {
  const PolicyInfo* policy = nullptr;
  PolicyParameters parameters;
  Tuning tuning;
  Settings settings;
};

Result<Target> target_of(const Trace& trace, const PrepareOptions& options) {
  Target target;
  target.settings = trace.settings();
  target.parameters = options.parameters;
  if (!options.policy.empty()) {
    ASSIGN_OR_RETURN(target.policy, find_policy(options.policy));
  } else if (target.settings.keeps_bound()) {
    ASSIGN_OR_RETURN(target.policy, parse_policy_text(target.settings.policy, target.parameters));
  } else {
    ASSIGN_OR_RETURN(target.policy, find_policy(kDefaultPolicy));
  }
  const double recorded_s = target.settings.keeps_bound() ? target.settings.bound_s : kDefaultBound_s;
  target.settings.bound_s = options.bound_s.value_or(recorded_s);
  // If the trace was prepared for this bound already, the choice must be the same as then: two measurements of the cost
  // of a restore are never equal.
  std::optional<double> restore_s;
  if (target.settings.bound_s == trace.settings().bound_s) restore_s = trace.settings().restore_cost_s;
  if (!restore_s) {
    ASSIGN_OR_RETURN(restore_s, measure_spawn_s());
  }
  const auto tuning = tune(options.tuning, target.settings.bound_s, std::nullopt, std::nullopt, *restore_s);
  // It is not the user's mistake if the trace's own bound cannot be kept.
  if (!tuning) return options.bound_s ? tuning.error() : Error{tuning.error().message};
  target.tuning = *tuning;
  target.parameters.critical_path_ns = static_cast<uint64_t>(target.tuning.critical_path_s * 1e9);
  target.parameters.checkpoint_period_ns = static_cast<uint64_t>(target.tuning.period_s * 1e9);
  target.settings.policy = policy_text(*target.policy, target.parameters);
  target.settings.critical_path_s = target.tuning.critical_path_s;
  target.settings.checkpoint_period_s = target.tuning.period_s;
  target.settings.restore_cost_s = target.tuning.restore_s;
  return target;
}

Result<int> prepare(const PrepareOptions& options) {
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  ASSIGN_OR_RETURN(const auto trace, Trace::open(directory));
  ASSIGN_OR_RETURN(const Target target, target_of(*trace, options));
  ASSIGN_OR_RETURN(const auto isolated, find_units(*trace, options.isolate));
  ASSIGN_OR_RETURN(const auto chosen, choose_checkpoints(*trace, options.tuning, target.tuning));
  const auto policy = target.policy->make(target.parameters);
  ASSIGN_OR_RETURN(const Missing missing, choose(*trace, chosen, *policy, target.parameters, isolated));
  ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(*trace));
  ASSIGN_OR_RETURN(const auto sets, sets_of(graph, stretches_of(*trace, graph.rdg(), missing)));
  ASSIGN_OR_RETURN(const auto additions, TraceAdditions::begin(*trace));
  Taking taking(missing, *additions, options.progress && !options.json);
  const auto taken = take(*trace, graph, options, sets, taking);
  if (!taken) {
    TRY(additions->publish());
    return taken.error();
  }
  if (taking.images != missing.images.size() || taking.payloads != missing.payloads.size()) {
    return Error{fmt::format("only {} of {} images and {} of {} messages could be taken from the replay",
                             taking.images.load(), missing.images.size(), taking.payloads.load(),
                             missing.payloads.size())};
  }
  TRY(additions->finish(target.settings));
  ASSIGN_OR_RETURN(const auto prepared, Trace::open(directory));
  for (const auto& over : over_bound(*prepared)) notice("{}", describe(*prepared, over));
  if (options.json) {
    print_json({{"directory", directory},
                {"bound_s", target.settings.bound_s},
                {"policy", target.settings.policy},
                {"images", taking.images.load()},
                {"messages", taking.payloads.load()},
                {"message_bytes", taking.bytes.load()}});
  } else {
    fmt::print("{}: bound {}, {}; {} and {} ({}) added\n", printable(directory),
               format_duration(target.settings.bound_s), target.settings.policy, counted(taking.images, "image"),
               counted(taking.payloads, "message"), format_size(taking.bytes));
  }
  return 0;
}

constexpr CommandText kText{
    "prepare",
    "redrive prepare [--bound D] [--tuning RULE] [--policy P] [--set-bound N] [--multiplicity M] [--approximate] "
    "[--cores J] [--isolate UNIT,...] [--jobs N] [--interception TIER] [--json] [TRACE]",
    "make a trace with virtual checkpoints keep a bound, or change the bound",
    "Re-drives what is needed to store the checkpoints and payloads that the bound needs and the trace lacks.\n"
    "It can be interrupted; the next prepare continues where it stopped.\n",
    "TRACE: a directory, or a name from 'redrive ls'; by default, the latest\n"
    "UNIT:  a number or a name from 'redrive ls TRACE'\n"};

class PrepareCommand : public CommandWith<PrepareOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    PrepareOptions& o = options_;
    arguments.duration("--bound", "D", "longest time that a replay of one interval may take (the trace's, or 10s)",
                       [&o](double s) { o.bound_s = s; });
    add_tuning(arguments, o.tuning);
    add_policy(arguments, fmt::format("the trace's, or {}", kDefaultPolicy), o.policy, o.parameters);
    arguments.list("--isolate", "UNIT,...", "group of units to make replayable without the others",
                   [&o](const std::string& word) -> Result<void> {
                     o.isolate.push_back(word);
                     return {};
                   });
    o.jobs = default_jobs();
    add_jobs(arguments, "number of intervals to execute at once (one per processor)", o.jobs);
    add_interception(arguments, o.in_process);
    arguments.json(o.json);
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    ASSIGN_OR_RETURN(options_.trace, only_trace(arguments));
    if (const auto fits = check_policy(arguments, options_.policy, options_.parameters); !fits) {
      return usage(fits.error().message);
    }
    return {};
  }

  Result<int> run() override {
    TRY(check_limits());
    options_.progress = isatty(STDERR_FILENO) != 0;
    return prepare(options_);
  }
};

}  // namespace

std::unique_ptr<Command> make_prepare_command() { return std::make_unique<PrepareCommand>(kText); }

}  // namespace redrive
