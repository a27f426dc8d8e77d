// redrive plan: the replay set of one interval or of a distributed breakpoint, and how long re-driving it would take.
#include "supervisor/cli/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/parallel.h"
#include "base/text.h"
#include "base/units.h"
#include "logstore/trace.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/shared_options.h"
#include "supervisor/cli/words.h"
#include "supervisor/plan/certificate.h"
#include "supervisor/plan/graph.h"
#include "supervisor/plan/plan.h"
#include "supervisor/plan/recovery_line.h"
#include "supervisor/replay/replay_set.h"

namespace redrive {

namespace {

using Json = nlohmann::ordered_json;

// At the pace at which replays were measured, if they were.
PredictedReplay predicted(const Plan& plan, const Trace& trace, int jobs) {
  ReplayCosts costs = costs_of(trace, static_cast<uint32_t>(jobs));
  const auto certificate = kept_certificate(trace);
  if (certificate && *certificate) costs.pace = (*certificate)->pace;
  return predict(plan, costs);
}

// The last event to execute; nullopt if there is none.
std::optional<EventIndex> requisite_event(const PlannedInterval& planned, const Trace& trace) {
  if (planned.requisite_event == trace.intervals(planned.unit).at(planned.start).first_event) return std::nullopt;
  return planned.requisite_event - 1;
}

Json replay_set_json(const Plan& plan, const Trace& trace) {
  Json set = Json::array();
  for (const auto& planned : plan.replay_set) {
    const auto requisite = requisite_event(planned, trace);
    set.push_back({{"unit", planned.unit},
                   {"interval", planned.interval},
                   {"requisite_event", requisite ? Json(*requisite) : Json()},
                   {"start", planned.start},
                   {"cpu_s", seconds(planned.cpu_ns)},
                   {"name", trace.unit_name(planned.unit)}});
  }
  return set;
}

// Prints the contents and the cost of a plan, after `of`, which says what is planned.
void print_plan_json(Json of, const Plan& plan, const Trace& trace, int jobs) {
  const PredictedReplay replay = predicted(plan, trace, jobs);
  of.update({{"replay_set", replay_set_json(plan, trace)},
             {"critical_path_s", seconds(plan.critical_path_ns)},
             {"work_s", seconds(plan.work_ns)},
             {"restore_s", replay.restore_s},
             {"messages", replay.messages},
             {"predicted_s", replay.predicted_s},
             {"jobs", jobs},
             {"bound_s", trace.settings().bound_s},
             {"over_bound", trace.settings().keeps_bound() && replay.predicted_s > trace.settings().bound_s}});
  print_json(of);
}

void print_sums(const Plan& plan, const Trace& trace, int jobs) {
  const Settings& settings = trace.settings();
  const double seconds_predicted = predicted(plan, trace, jobs).predicted_s;
  std::string bound;
  if (settings.keeps_bound()) {
    const bool over = seconds_predicted > settings.bound_s;
    bound = fmt::format(" ({}bound {})", over ? "longer than the " : "", format_duration(settings.bound_s));
  }
  fmt::print("\n{} to execute: critical path {}, work {}; about {} with {}{}\n",
             counted(plan.replay_set.size(), "interval"), format_duration(seconds(plan.critical_path_ns)),
             format_duration(seconds(plan.work_ns)), format_duration(seconds_predicted),
             counted(static_cast<uint64_t>(jobs), "job"), bound);
}

void print_plan(const Plan& plan, const Trace& trace, int jobs) {
  Columns columns({">UNIT", "NAME", ">INTERVAL", ">FROM", ">REQUISITE EVENT", ">CPU"});
  for (const auto& planned : plan.replay_set) {
    const auto requisite = requisite_event(planned, trace);
    columns.add({fmt::format("{}", planned.unit), trace.unit_name(planned.unit), fmt::format("{}", planned.interval),
                 fmt::format("{}", planned.start), requisite ? fmt::format("{}", *requisite) : "-",
                 format_duration(seconds(planned.cpu_ns))});
  }
  columns.print();
  print_sums(plan, trace, jobs);
}

// Where a unit stands at a breakpoint, and its part of the recovery line.
struct Placed {
  UnitId unit = 0;
  Breakpoint::Place place;
  const char* state = "not started";
  const PlannedInterval* planned = nullptr;  // null: nothing of the unit is executed to stand there
  EventIndex first_event = 0;                // of what is executed
};

std::vector<Placed> placed_units(const Breakpoint& breakpoint, const RecoveryLine& line, const Trace& trace) {
  std::vector<Placed> all;
  for (const auto& [unit, place] : breakpoint.units) {
    Placed placed{unit, place, place.started ? "ended" : "not started", nullptr, 0};
    for (size_t i = 0; i < line.standing.size(); ++i) {
      if (line.standing[i].unit != unit) continue;
      placed.state = "standing";
      placed.planned = &line.plan.replay_set[i];
      placed.first_event = trace.intervals(unit).at(placed.planned->start).first_event;
    }
    all.push_back(placed);
  }
  return all;
}

void print_breakpoint_json(const std::vector<Placed>& units, const Plan& plan, const Trace& trace, int jobs) {
  Json list = Json::array();
  for (const Placed& placed : units) {
    Json unit{{"unit", placed.unit},
              {"name", trace.unit_name(placed.unit)},
              {"state", placed.state},
              {"event", placed.place.event}};
    if (placed.planned) {
      unit["interval"] = placed.planned->interval;
      unit["start"] = placed.planned->start;
      unit["events"] = placed.place.event - placed.first_event;
      unit["cpu_s"] = seconds(placed.planned->cpu_ns);
    }
    list.push_back(unit);
  }
  print_plan_json({{"units", list}}, plan, trace, jobs);
}

void print_breakpoint(const std::vector<Placed>& units, const RecoveryLine& line, const Trace& trace, int jobs) {
  Columns columns({">UNIT", "NAME", "STATE", ">BEFORE EVENT", ">FROM", ">EVENTS", ">CPU"});
  for (const Placed& placed : units) {
    const bool stands = placed.planned != nullptr;
    columns.add({fmt::format("{}", placed.unit), trace.unit_name(placed.unit), placed.state,
                 stands ? fmt::format("{}", placed.place.event) : "-",
                 stands ? fmt::format("{}", placed.planned->start) : "-",
                 stands ? fmt::format("{}", placed.place.event - placed.first_event) : "-",
                 stands ? format_duration(seconds(placed.planned->cpu_ns)) : "-"});
  }
  columns.print();
  print_sums(line.plan, trace, jobs);
}

Result<int> plan_breakpoint(const PlanOptions& options, const Trace& trace) {
  ASSIGN_OR_RETURN(const auto events, find_events(trace, options.breaks));
  ASSIGN_OR_RETURN(const Communication communication, read_communication(trace));
  ASSIGN_OR_RETURN(const Breakpoint breakpoint, causal_breakpoint(communication, events));
  ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(trace));
  ASSIGN_OR_RETURN(const RecoveryLine line, recovery_line(communication, graph, breakpoint));
  const auto units = placed_units(breakpoint, line, trace);
  if (options.json) {
    print_breakpoint_json(units, line.plan, trace, options.jobs);
  } else {
    print_breakpoint(units, line, trace, options.jobs);
  }
  return 0;
}

Result<int> show_plan(const PlanOptions& options) {
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  ASSIGN_OR_RETURN(const std::shared_ptr<Trace> trace, Trace::open(directory));
  if (!options.breaks.empty()) return plan_breakpoint(options, *trace);
  ASSIGN_OR_RETURN(const Selection selection, select(*trace, options.what));
  if (options.until) {
    TRY(check_until(*trace, selection.unit, selection.first, *options.until));
  }
  ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(*trace));
  ASSIGN_OR_RETURN(const PlanResult result, graph.plan(selection.unit, selection.first, options.until));
  if (!result.plan) {
    ASSERT(result.error.has_value());
    return Error{
        fmt::format("{}:{} cannot be re-driven: {}", options.what.unit, selection.first, describe(*result.error))};
  }
  if (options.json) {
    print_plan_json({{"unit", result.plan->unit}, {"interval", result.plan->interval}}, *result.plan, *trace,
                    options.jobs);
  } else {
    print_plan(*result.plan, *trace, options.jobs);
  }
  return 0;
}

constexpr CommandText kPlanText{
    "plan",
    "redrive plan [--jobs N] [--until EVENT] [--json] [TRACE] UNIT:I | --break UNIT@EVENT ... [TRACE]",
    "show what a replay would have to execute, and how long it would take",
    "",
    {kTraceWord, kUnitWord, kIntervalsWord}};

class PlanCommand : public CommandWith<PlanOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    options_.jobs = processor_count();
    add_jobs(arguments, "predict the time for this many intervals executed at once (one per processor)", options_.jobs);
    add_until(arguments, options_.until);
    add_break(arguments, "plan the distributed breakpoint with UNIT right before EVENT; may be repeated",
              options_.breaks);
    arguments.json(options_.json);
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    const auto& words = arguments.given_words();
    if (!options_.breaks.empty()) {
      if (options_.until) return usage("--break cannot be combined with --until");
      if (words.size() > 1) return usage("--break takes a TRACE, not a UNIT");
      if (!words.empty()) options_.trace = words[0];
      return {};
    }
    if (words.empty() || words.size() > 2) return usage("expected [TRACE] UNIT:I");
    ASSIGN_OR_RETURN(options_.what, parse_unit_spec(words.back()));
    if (!options_.what.single()) {
      return usage(fmt::format("'{}' does not name one interval: write UNIT:I", words.back()));
    }
    if (words.size() == 2) options_.trace = words[0];
    return {};
  }

  Result<int> run() override { return show_plan(options_); }
};

}  // namespace

std::unique_ptr<Command> make_plan_command() { return std::make_unique<PlanCommand>(kPlanText); }

}  // namespace redrive
