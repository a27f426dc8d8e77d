// redrive prepare: the second and third of four phases (plan/DESIGN.md). A policy decides off line which checkpoints
// and messages a bound needs; what the trace lacks of these is taken from a replay.
#include "supervisor/cli/prepare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/notice.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/units.h"
#include "checkpoint/spawn_cost.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/cli/bound_keeping.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/host.h"
#include "supervisor/cli/progress.h"
#include "supervisor/cli/shared_options.h"
#include "supervisor/cli/words.h"
#include "supervisor/evaluation/evaluation.h"
#include "supervisor/evaluation/execution.h"
#include "supervisor/plan/certificate.h"
#include "supervisor/plan/tuning.h"
#include "supervisor/replay/taking.h"

namespace redrive {
namespace {

using What = Execution::What;

constexpr double kDefaultBound_s = 10;

// ---- Which checkpoints

// The intervals that must begin with a checkpoint because of the longest allowed CPU time between checkpoints,
// including those that already do. Where noted checkpoints are farther apart than that, the certificate says whether
// the bound is kept nevertheless; it cannot be if an interval alone takes longer.
Result<std::set<Checkpoint>> choose_checkpoints(const Trace& trace, double bound_s, const Tuning& tuning) {
  std::set<Checkpoint> chosen;
  double longest_s = 0;
  for (const auto& unit : trace.units()) {
    double since_s = 0;
    for (const auto& interval : trace.intervals(unit.unit)) {
      const double cpu_s = seconds(interval_extent(trace, unit.unit, interval.interval).cpu_ns);
      const bool due = interval.kind == CheckpointKind::image && since_s + cpu_s > tuning.period_s;
      if (startable(interval) || due) {
        chosen.emplace(unit.unit, interval.interval);
        since_s = 0;
      }
      since_s += cpu_s;
      longest_s = std::max(longest_s, cpu_s);
    }
  }
  const double alone_s = longest_s + tuning.restore_s;
  if (alone_s <= bound_s) return chosen;
  constexpr double kMargin = 1.05;  // the measured time of a restore varies
  return Error{
      fmt::format("this bound cannot be kept: some of the noted checkpoints are {} apart; a bound of {} can be kept",
                  format_duration(longest_s), format_duration(kMargin * alone_s))};
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
  CheckpointPlacement placement;
  placement.forced = false;  // the intervals are the recorded ones
  placement.lengths_known = true;
  ASSIGN_OR_RETURN(const Decided decided, decide(execution, policy, parameters, placement));
  for (uint32_t i = 0; i < execution.steps.size(); ++i) {
    const Execution::Step& step = execution.steps[i];
    const EventRef event = execution.events[i];
    const auto senders = execution.senders_of(step);
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
  TuningRequest wanted{options.tuning, (target.policy->parameters & kCores) != 0};
  // What was chosen for this bound and policy holds.
  const bool same = trace.settings().keeps_bound() && target.settings.bound_s == trace.settings().bound_s &&
                    policy_text(*target.policy, target.parameters) == trace.settings().policy;
  if (same && options.tuning == TuningRule::promise && trace.settings().critical_path_s > 0) {
    wanted.critical_path_s = trace.settings().critical_path_s;
    wanted.period_s = trace.settings().checkpoint_period_s;
  }
  const auto tuning = tune(wanted, target.settings.bound_s, *restore_s);
  // It is not the user's mistake if the trace's own bound cannot be kept.
  if (!tuning) return options.bound_s ? tuning.error() : Error{tuning.error().message};
  target.tuning = *tuning;
  target.parameters.critical_path_ns = nanoseconds(target.tuning.critical_path_s);
  target.parameters.checkpoint_period_ns = nanoseconds(target.tuning.period_s);
  target.settings.policy = policy_text(*target.policy, target.parameters);
  target.settings.critical_path_s = target.tuning.critical_path_s;
  target.settings.checkpoint_period_s = target.tuning.period_s;
  target.settings.restore_cost_s = target.tuning.restore_s;
  return target;
}

// Takes what is missing from a replay.
Result<Taken> add(const Trace& trace, const Missing& missing, const Settings& settings, const PrepareOptions& options,
                  bool progress) {
  trap_own_instructions();
  const std::vector<int> processors = usable_processors(options.jobs);
  const auto tier = options.in_process ? make_tier() : nullptr;
  ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(trace));
  const ProgressLine line(progress);
  return take({trace, graph, processors, tier.get()}, missing, settings, [&](const Taken& so_far) {
    line.show(fmt::format("{} of {} images, {} of {} messages", so_far.images, missing.images.size(), so_far.payloads,
                          missing.payloads.size()));
  });
}

// Whether the trace keeps this bound, by this policy, already. The policy might choose other messages now, because the
// memory that is restored is known.
bool is_prepared(const Trace& trace, const Settings& wanted) {
  const Settings& settings = trace.settings();
  if (settings.bound_s != wanted.bound_s || settings.policy != wanted.policy) return false;
  if (settings.critical_path_s != wanted.critical_path_s) return false;
  const auto certificate = certificate_of(trace);
  return certificate && *certificate && (*certificate)->is_kept();
}

Result<int> prepare(const PrepareOptions& options) {
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  ASSIGN_OR_RETURN(const auto trace, Trace::open(directory));
  ASSIGN_OR_RETURN(const Target target, target_of(*trace, options));
  ASSIGN_OR_RETURN(const auto isolated, find_units(*trace, options.isolate));
  ASSIGN_OR_RETURN(const auto chosen, choose_checkpoints(*trace, target.settings.bound_s, target.tuning));
  const auto known = certificate_of(*trace);
  const auto policy = target.policy->make(target.parameters);
  Missing missing;
  if (!isolated.empty() || !is_prepared(*trace, target.settings)) {
    ASSIGN_OR_RETURN(missing, choose(*trace, chosen, *policy, target.parameters, isolated));
  }
  const bool progress = options.progress && !options.json;
  ASSIGN_OR_RETURN(const Taken taken, add(*trace, missing, target.settings, options, progress));
  const bool repairs = !options.no_repair && options.tuning == TuningRule::promise;
  BoundKeeping keeping{options.jobs, options.in_process, repairs, progress};
  if (known && *known) keeping.known_pace = (*known)->pace;
  ASSIGN_OR_RETURN(const auto prepared, Trace::open(directory));
  ASSIGN_OR_RETURN(const auto certificate, keep_bound(*prepared, keeping));
  if (certificate && !certificate->is_kept()) {
    if (options.require_bound) return Error{describe_over(*prepared, *certificate)};
    notice("{}", describe_over(*prepared, *certificate));
  }
  if (options.json) {
    print_json({{"directory", directory},
                {"bound_s", target.settings.bound_s},
                {"policy", target.settings.policy},
                {"images", taken.images},
                {"messages", taken.payloads},
                {"message_bytes", taken.payload_bytes}});
  } else {
    fmt::print("{}: bound {}, {}; {} and {} ({}) added\n", printable(directory),
               format_duration(target.settings.bound_s), target.settings.policy, counted(taken.images, "image"),
               counted(taken.payloads, "message"), format_size(taken.payload_bytes));
  }
  return 0;
}

constexpr CommandText kPrepareText{
    "prepare",
    "redrive prepare [--bound D] [--tuning RULE] [--policy P] [--set-bound N] [--multiplicity M] [--approximate] "
    "[--cores J] [--isolate UNIT,...] [--no-repair] [--require-bound] [--jobs N] [--interception TIER] [--json] "
    "[TRACE]",
    "make a trace with virtual checkpoints keep a bound, or change the bound",
    "Re-drives what is needed to store the checkpoints and payloads that the bound needs and the trace lacks.\n"
    "It can be interrupted; the next prepare continues where it stopped.\n",
    {kTraceWord, kUnitWord}};

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
    arguments.flag("--no-repair", o.no_repair, "if replays would take longer than the bound, only say so");
    arguments.flag("--require-bound", o.require_bound, "fail if a replay would take longer than the bound");
    o.jobs = processor_count();
    add_jobs(arguments, "number of intervals to execute at once (one per processor)", o.jobs);
    add_interception(arguments, o.in_process);
    arguments.json(o.json);
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    ASSIGN_OR_RETURN(options_.trace, only_trace(arguments));
    if (const auto fits = check_policy(arguments, options_.policy); !fits) {
      return usage(fits.error().message);
    }
    return {};
  }

  Result<int> run() override {
    TRY(prepare_to_trace());
    options_.progress = isatty(STDERR_FILENO) != 0;
    return prepare(options_);
  }
};

}  // namespace

std::unique_ptr<Command> make_prepare_command() { return std::make_unique<PrepareCommand>(kPrepareText); }

}  // namespace redrive
