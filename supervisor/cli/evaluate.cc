// redrive evaluate: what policies would have kept of an execution, and how long replays would then take. There is one
// row for each policy and each combination of its parameters.
#include "supervisor/cli/evaluate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/parallel.h"
#include "base/text.h"
#include "base/units.h"
#include "logstore/trace.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/host.h"
#include "supervisor/cli/shared_options.h"
#include "supervisor/cli/stored_set_costs.h"
#include "supervisor/cli/words.h"
#include "supervisor/evaluation/evaluation.h"
#include "supervisor/evaluation/lower_bound.h"
#include "supervisor/replay/replay_set.h"

namespace redrive {

namespace {

bool is_evaluated(const PolicyInfo& policy, const EvaluateOptions& options) {
  const auto& names = options.policies;
  return names.empty() || std::find(names.begin(), names.end(), policy.name) != names.end();
}

using Json = nlohmann::ordered_json;

// What is evaluated, and the parameters of its recording.
struct Subject {
  std::shared_ptr<Trace> trace;  // null: a synthetic execution
  Execution execution;
  PolicyParameters parameters;
  Json recorded;  // null if there was no recording
  ScheduleKind schedule = ScheduleKind::list;
  Pace pace;  // that its certificate has
  // The times of replaying all intervals with what the trace holds; nullopt if they were not asked for.
  std::optional<Spread> replays_s;
  size_t replays = 0;
};

struct Row {
  const PolicyInfo* policy = nullptr;
  PolicyParameters parameters;
  CheckpointPlacement placement;
  uint64_t different = 0;  // receives and births that were decided differently when recording
  uint64_t checkpoints = 0, forced_checkpoints = 0;
  Logged logged;
  std::optional<LowerBound> least;  // for policies that promise a time, if it was asked for
  Costs costs;
  std::optional<StoredSetCosts> stored_sets;
};

double share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// The mean over intervals: for critical paths all intervals, for other values those that were measured.
double mean(const Spread& spread, uint64_t count) { return count == 0 ? 0 : spread.sum / static_cast<double>(count); }

// How a value of a row is shown: as JSON and CSV under `key`, and, if it has a heading, in the table.
struct Field {
  const char* key;
  const char* heading;
  Json (*value)(const Row&, const Subject&);
  std::string (*text)(const Json&);
};

std::string plain(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }
std::string duration(const Json& value) { return value.is_null() ? "-" : format_duration(value.get<double>()); }
std::string percent(const Json& value) { return fmt::format("{:.2f} %", 100 * value.get<double>()); }
std::string size(const Json& value) { return value.is_null() ? "-" : format_size(value.get<uint64_t>()); }
std::string number(const Json& value) { return value.is_null() ? "-" : value.dump(); }
std::string decimal(const Json& value) { return value.is_null() ? "-" : fmt::format("{:.2f}", value.get<double>()); }

// Only what the trace holds can be re-driven.
bool is_measured(const Row& row, const Subject& subject) {
  return subject.replays_s && row.placement.recorded && row.different == 0;
}
uint64_t replays_that_end(const Row& row) { return row.costs.measured - row.costs.deadlocks; }
double makespan_average_s(const Row& row) { return mean(row.costs.makespan_s, replays_that_end(row)); }
double measured_average_s(const Subject& subject) { return mean(*subject.replays_s, subject.replays); }

// How many times the least number of bytes a row keeps. There is no such number if the least is 0 and the row keeps
// more.
Json times_least(const Row& row) {
  if (!row.least) return Json();
  const uint64_t kept = row.logged.logged_bytes, least = row.least->bytes;
  if (least == 0) return kept == 0 ? Json(1.0) : Json();
  return Json(static_cast<double>(kept) / static_cast<double>(least));
}

double in_c(double s, const Row& row) { return s / seconds(row.parameters.critical_path_ns); }

const std::vector<Field>& fields() {
  using R = const Row&;
  using S = const Subject&;
  static const std::vector<Field> kFields{
      {"policy", "POLICY", [](R r, S) { return Json(policy_text(*r.policy, r.parameters)); }, plain},
      {"critical_path_limit_s", ">C", [](R r, S) { return Json(seconds(r.parameters.critical_path_ns)); }, duration},
      {"checkpoint_period_s", ">T", [](R r, S) { return Json(seconds(r.parameters.checkpoint_period_ns)); }, duration},
      {"skew_s", ">SKEW", [](R r, S) { return r.placement.recorded ? Json() : Json(seconds(r.placement.skew_ns)); },
       duration},
      {"clock", nullptr,
       [](R r, S) {
         return r.placement.recorded ? Json() : Json(clock_names()[static_cast<size_t>(r.placement.clock)]);
       },
       plain},
      {"schedule", nullptr, [](R, S s) { return Json(schedule_names()[static_cast<size_t>(s.schedule)]); }, plain},
      {"cores", ">J", [](R r, S) { return Json(r.parameters.cores); }, plain},
      {"messages", nullptr, [](R r, S) { return Json(r.logged.messages); }, plain},
      {"logged_messages", ">LOGGED", [](R r, S) { return Json(r.logged.logged_messages); }, plain},
      {"logged_share", ">SHARE", [](R r, S) { return Json(share(r.logged.logged_messages, r.logged.messages)); },
       percent},
      {"message_bytes", nullptr, [](R r, S) { return Json(r.logged.message_bytes); }, plain},
      {"logged_bytes", ">BYTES", [](R r, S) { return Json(r.logged.logged_bytes); }, size},
      {"least_messages", ">LEAST", [](R r, S) { return r.least ? Json(r.least->messages) : Json(); }, number},
      {"least_bytes", ">LEAST BYTES", [](R r, S) { return r.least ? Json(r.least->bytes) : Json(); }, size},
      {"least_solved", nullptr, [](R r, S) { return r.least ? Json(r.least->is_solved) : Json(); }, plain},
      {"times_least", ">TIMES", [](R r, S) { return times_least(r); }, decimal},
      {"births", nullptr, [](R r, S) { return Json(r.logged.births); }, plain},
      {"stored_births", nullptr, [](R r, S) { return Json(r.logged.stored_births); }, plain},
      {"checkpoints", ">CHECKPOINTS", [](R r, S) { return Json(r.checkpoints); }, plain},
      {"forced_checkpoints", ">FORCED", [](R r, S) { return Json(r.forced_checkpoints); }, plain},
      {"intervals", nullptr, [](R r, S) { return Json(r.costs.intervals); }, plain},
      {"measured_intervals", nullptr, [](R r, S) { return Json(r.costs.measured); }, plain},
      {"replay_set_average", ">SET", [](R r, S) { return Json(mean(r.costs.replay_set, r.costs.measured)); }, decimal},
      {"replay_set_max", ">MAX", [](R r, S) { return Json(r.costs.replay_set.largest); }, decimal},
      {"multiplicity_average", nullptr, [](R r, S) { return Json(mean(r.costs.multiplicity, r.costs.measured)); },
       decimal},
      {"multiplicity_max", nullptr, [](R r, S) { return Json(r.costs.multiplicity.largest); }, decimal},
      {"replay_set_average_per_unit", nullptr,
       [](R r, S s) { return Json(mean(r.costs.replay_set, r.costs.measured) / s.execution.units); }, decimal},
      {"replay_set_max_per_unit", nullptr,
       [](R r, S s) { return Json(r.costs.replay_set.largest / s.execution.units); }, decimal},
      {"critical_path_average_s", ">PATH",
       [](R r, S) { return Json(mean(r.costs.critical_path_s, r.costs.intervals)); }, duration},
      {"critical_path_max_s", ">MAX", [](R r, S) { return Json(r.costs.critical_path_s.largest); }, duration},
      {"work_average_s", ">WORK", [](R r, S) { return Json(mean(r.costs.work_s, r.costs.measured)); }, duration},
      {"work_max_s", ">MAX", [](R r, S) { return Json(r.costs.work_s.largest); }, duration},
      {"makespan_average_s", ">MAKESPAN", [](R r, S) { return Json(makespan_average_s(r)); }, duration},
      {"makespan_max_s", ">MAX", [](R r, S) { return Json(r.costs.makespan_s.largest); }, duration},
      {"makespan_average_c", ">/C", [](R r, S) { return Json(in_c(makespan_average_s(r), r)); }, decimal},
      {"deadlocks", nullptr, [](R r, S) { return Json(r.costs.deadlocks); }, plain},
      {"makespan_max_c", ">MAX/C", [](R r, S) { return Json(in_c(r.costs.makespan_s.largest, r)); }, decimal},
      {"predicted_average_s", nullptr, [](R r, S) { return Json(mean(r.costs.predicted_s, r.costs.measured)); },
       duration},
      {"predicted_max_s", ">PREDICTED", [](R r, S) { return Json(r.costs.predicted_s.largest); }, duration},
      {"measured_average_s", nullptr, [](R r, S s) { return is_measured(r, s) ? Json(measured_average_s(s)) : Json(); },
       duration},
      {"measured_max_s", ">MEASURED", [](R r, S s) { return is_measured(r, s) ? Json(s.replays_s->largest) : Json(); },
       duration},
      {"measured_average_c", nullptr,
       [](R r, S s) { return is_measured(r, s) ? Json(in_c(measured_average_s(s), r)) : Json(); }, decimal},
      {"measured_max_c", ">MAX/C",
       [](R r, S s) { return is_measured(r, s) ? Json(in_c(s.replays_s->largest, r)) : Json(); }, decimal},
      {"stored_set_bytes", nullptr, [](R r, S) { return r.stored_sets ? Json(r.stored_sets->bytes) : Json(); }, plain},
      {"stored_sets_different", nullptr, [](R r, S) { return r.stored_sets ? Json(r.stored_sets->different) : Json(); },
       plain},
      {"stored_set_load_s", nullptr, [](R r, S) { return r.stored_sets ? Json(r.stored_sets->load_s) : Json(); },
       duration},
      {"set_search_s", nullptr, [](R r, S) { return r.stored_sets ? Json(r.stored_sets->search_s) : Json(); },
       duration},
      {"planning_s", nullptr,
       [](R r, S) { return r.stored_sets && r.stored_sets->planning_s ? Json(*r.stored_sets->planning_s) : Json(); },
       duration},
      {"different", nullptr, [](R r, S s) { return s.recorded.is_null() ? Json() : Json(r.different); }, plain},
  };
  return kFields;
}

uint64_t count_different(const Execution& execution, const Decided& decided) {
  uint64_t different = 0;
  for (size_t i = 0; i < execution.steps.size(); ++i) different += execution.steps[i].logged != decided.kept[i];
  return different;
}

Result<Subject> read_subject(const EvaluateOptions& options) {
  constexpr uint64_t kSyntheticPeriod_ns = 100'000'000;
  Subject subject;
  subject.parameters.approximate = options.approximate;
  subject.parameters.cores = static_cast<uint32_t>(options.jobs);
  subject.schedule = options.schedule;
  if (options.synthetic) {
    subject.execution = make_execution(*options.synthetic);
    subject.parameters.checkpoint_period_ns = kSyntheticPeriod_ns;
    subject.parameters.critical_path_ns = 2 * kSyntheticPeriod_ns;
    return subject;
  }
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  ASSIGN_OR_RETURN(subject.trace, Trace::open(directory));
  const Trace& trace = *subject.trace;
  ASSIGN_OR_RETURN(subject.execution, read_execution(trace));
  const Settings& settings = trace.settings();
  TRY(parse_policy_text(settings.policy, subject.parameters));
  if (const auto certificate = kept_certificate(trace); certificate && *certificate)
    subject.pace = (*certificate)->pace;
  subject.parameters.critical_path_ns = nanoseconds(settings.critical_path_s);
  subject.parameters.checkpoint_period_ns = nanoseconds(settings.checkpoint_period_s);
  if (!settings.keeps_bound()) subject.parameters.critical_path_ns = 2 * subject.parameters.checkpoint_period_ns;
  if (options.measure) {
    TRY(prepare_to_trace());
    ASSIGN_OR_RETURN(const auto times_s, replay_times_s(trace, options.jobs));
    subject.replays = times_s.size();
    subject.replays_s.emplace();
    for (const double time_s : times_s) subject.replays_s->add(time_s);
  }
  uint64_t messages = 0, logged_messages = 0, logged_bytes = 0;
  for (const auto& step : subject.execution.steps) {
    if (!step.message) continue;
    ++messages;
    logged_messages += step.logged;
    logged_bytes += step.logged ? step.bytes : 0;
  }
  subject.recorded = {{"policy", settings.policy},
                      {"messages", messages},
                      {"logged_messages", logged_messages},
                      {"logged_bytes", logged_bytes}};
  return subject;
}

// Calls `call` with each of the values; if there are none, with the present value.
template <typename Value, typename Given, typename Call>
void for_each_value(const std::vector<Given>& values, Value& place, Value (*convert)(Given), Call call) {
  const Value before = place;
  for (const Given& value : values) {
    place = convert(value);
    call();
  }
  if (values.empty()) call();
  place = before;
}

class Sweep {
 public:
  Sweep(const Subject& subject, const EvaluateOptions& options) : subject_(subject), options_(options) {
    row_.parameters = subject.parameters;
    row_.placement.seed = options.seed;
    row_.placement.recorded =
        !options.synthetic && options.checkpoint_period_s.empty() && options.skew_s.empty() && !options.clock;
    row_.placement.clock = options.clock.value_or(PlacementClock::cpu);
  }

  Result<std::vector<Row>> run() {
    for (const auto& policy : policies()) {
      if (!is_evaluated(policy, options_)) continue;
      row_.policy = &policy;
      for_each_value(options_.checkpoint_period_s, row_.parameters.checkpoint_period_ns, nanoseconds, [this] {
        for_each_value(options_.skew_s, row_.placement.skew_ns, nanoseconds, [this] { sweep_limits(); });
      });
    }
    if (error_) return *error_;
    return std::move(rows_);
  }

 private:
  static uint32_t same(uint32_t value) { return value; }

  void sweep_limits() {
    const unsigned has = row_.policy->parameters;
    for_each_value(given(has & kCriticalPath, options_.critical_path_s), row_.parameters.critical_path_ns, nanoseconds,
                   [this, has] {
                     for_each_value(given(has & kMultiplicity, options_.multiplicity), row_.parameters.multiplicity,
                                    same, [this, has] {
                                      for_each_value(given(has & kSetBound, options_.set_bound),
                                                     row_.parameters.set_bound, same, [this] { sweep_cores(); });
                                    });
                   });
  }

  // If the policy does not use the parameter, only the first value. C is needed in any case, as a unit of measure.
  template <typename Value>
  static std::vector<Value> given(bool used, std::vector<Value> values) {
    if (!used && values.size() > 1) values.resize(1);
    return values;
  }

  void sweep_cores() {
    std::optional<Decided> decided;
    for_each_value(options_.cores, row_.parameters.cores, same, [&] {
      if (error_) return;
      if (!decided || (row_.policy->parameters & kCores)) {
        Result<Decided> made = decide_row();
        if (!made) {
          error_ = made.error();
          return;
        }
        decided = std::move(*made);
      }
      row_.costs = measure(subject_.execution, *decided, row_.parameters.cores, subject_.schedule, subject_.pace);
      if (options_.stored_sets) store_sets(*decided);
      rows_.push_back(row_);
    });
  }

  void store_sets(const Decided& decided) {
    const bool is_in_trace = subject_.trace && row_.placement.recorded && row_.different == 0;
    auto costs = stored_set_costs(subject_.execution, decided, is_in_trace ? subject_.trace.get() : nullptr);
    if (costs) {
      row_.stored_sets = *costs;
    } else {
      error_ = costs.error();
    }
  }

  // If so, its decisions are those that it took while recording.
  bool is_recorded() const {
    const PolicyParameters& recorded = subject_.parameters;
    return subject_.recorded["policy"] == Json(policy_text(*row_.policy, row_.parameters)) &&
           row_.parameters.critical_path_ns == recorded.critical_path_ns &&
           row_.parameters.checkpoint_period_ns == recorded.checkpoint_period_ns;
  }

  Result<Decided> decide_row() {
    const auto policy = row_.policy->make(row_.parameters);
    row_.placement.lengths_known = row_.placement.recorded && !is_recorded();
    ASSIGN_OR_RETURN(Decided decided, decide(subject_.execution, *policy, row_.parameters, row_.placement));
    row_.logged = count_logged(subject_.execution, decided);
    row_.different = count_different(subject_.execution, decided);
    row_.checkpoints = decided.checkpoints;
    row_.forced_checkpoints = decided.forced_checkpoints;
    row_.least.reset();
    if (options_.optimal && (row_.policy->parameters & kCriticalPath)) bound_row(decided);
    return decided;
  }

  void bound_row(const Decided& decided) {
    ReplayLimit limit{row_.parameters.critical_path_ns, std::nullopt};
    if (row_.policy->parameters & kCores) limit.cores = row_.parameters.cores;
    const auto least = lower_bound(subject_.execution, decided, limit);
    if (least) {
      row_.least = *least;
    } else {
      error_ = least.error();
    }
  }

  const Subject& subject_;
  const EvaluateOptions& options_;
  Row row_;
  std::vector<Row> rows_;
  std::optional<Error> error_;  // the first: no row follows it
};

void print_evaluation_json(const Subject& subject, const std::vector<Row>& rows) {
  Json all = Json::array();
  for (const Row& row : rows) {
    Json one;
    for (const Field& field : fields()) one[field.key] = field.value(row, subject);
    all.push_back(one);
  }
  const auto elapsed = elapsed_ns(subject.execution);
  const uint64_t longest_ns = elapsed.empty() ? 0 : *std::max_element(elapsed.begin(), elapsed.end());
  print_json({{"units", subject.execution.units},
              {"elapsed_s", seconds(longest_ns)},
              {"recorded", subject.recorded},
              {"policies", all}});
}

void print_csv(const Subject& subject, const std::vector<Row>& rows) {
  std::string text;
  for (const Field& field : fields()) text += (text.empty() ? "" : ",") + std::string(field.key);
  for (const Row& row : rows) {
    std::string line;
    for (const Field& field : fields()) {
      const Json value = field.value(row, subject);
      line += (line.empty() ? "" : ",") + (value.is_null() ? "" : plain(value));
    }
    text += "\n" + line;
  }
  fmt::print("{}\n", text);
}

// Columns in which no row has a value are left out.
void print_table(const Subject& subject, const std::vector<Row>& rows) {
  std::vector<const Field*> shown;
  std::vector<std::string> headings;
  for (const Field& field : fields()) {
    const auto has_value = [&](const Row& row) { return !field.value(row, subject).is_null(); };
    if (!field.heading || std::none_of(rows.begin(), rows.end(), has_value)) continue;
    shown.push_back(&field);
    headings.emplace_back(field.heading);
  }
  Columns columns(headings);
  bool sampled = false, unsolved = false;
  uint64_t deadlocks = 0, replays = 0;
  for (const Row& row : rows) {
    std::vector<std::string> cells;
    for (const Field* field : shown) cells.push_back(field->text(field->value(row, subject)));
    columns.add(cells);
    sampled |= row.costs.measured < row.costs.intervals;
    unsolved |= row.least && !row.least->is_solved;
    deadlocks += row.costs.deadlocks;
    replays += row.costs.measured;
  }
  columns.print();
  if (!rows.empty()) {
    const Logged& logged = rows.front().logged;
    fmt::print("\n{}, {} ({})\n", counted(subject.execution.units, "unit"), counted(logged.messages, "message"),
               format_size(logged.message_bytes));
  }
  if (!subject.recorded.is_null()) {
    fmt::print("recorded with {}: {} logged ({})\n", printable(subject.recorded["policy"].get<std::string>()),
               subject.recorded["logged_messages"].get<uint64_t>(),
               format_size(subject.recorded["logged_bytes"].get<uint64_t>()));
  }
  if (unsolved) {
    fmt::print(
        "LEAST and LEAST BYTES are lower bounds, but not all are the best: the time to compute them was over "
        "(--json: least_solved)\n");
  }
  if (deadlocks > 0) {
    fmt::print("{} of {} would wait for ever; MAKESPAN is that of the others\n", deadlocks, counted(replays, "replay"));
  }
  if (sampled) {
    fmt::print(
        "SET, WORK, MAKESPAN and PREDICTED cover only part of the intervals if replay sets are too large to "
        "build all (--json: measured_intervals)\n");
  }
}

Result<int> evaluate(const EvaluateOptions& options) {
  ASSIGN_OR_RETURN(const Subject subject, read_subject(options));
  ASSIGN_OR_RETURN(const std::vector<Row> rows, Sweep(subject, options).run());
  if (options.json) {
    print_evaluation_json(subject, rows);
  } else if (options.csv) {
    print_csv(subject, rows);
  } else {
    print_table(subject, rows);
  }
  return 0;
}

constexpr CommandText kEvaluateText{
    "evaluate",
    "redrive evaluate [--policy P,...] [--critical-path C,...] [--checkpoint-period T,...] [--skew S,...] [--clock C] "
    "[--set-bound N,...] [--multiplicity M,...] [--approximate] [--cores J,...] [--schedule S] [--measure] "
    "[--optimal] [--stored-sets] [--seed X] "
    "[--json | --csv] "
    "[TRACE] | --synthetic PATTERN [--units U] [--messages K] ...",
    "compare policies on a recorded execution, or on a synthetic one",
    "Prints one row for each policy and each combination of the given values of its parameters.\n"
    "With T, S or --clock, checkpoints are placed anew; otherwise they stay where they were recorded.\n",
    {kTraceWord}};

class EvaluateCommand : public CommandWith<EvaluateOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    EvaluateOptions& o = options_;
    arguments.list("--policy", "P,...", "the policies to compare (all)", [&o](const std::string& word) -> Result<void> {
      TRY(find_policy(word));
      o.policies.push_back(word);
      return {};
    });
    const auto durations = [&](const char* option, const char* value, const char* help, std::vector<double>& out) {
      arguments.list(option, value, help, [&out](const std::string& word) -> Result<void> {
        ASSIGN_OR_RETURN(const double seconds, read_duration(word));
        out.push_back(seconds);
        return {};
      });
    };
    const auto numbers = [&](const char* option, const char* value, const char* help, std::vector<uint32_t>& out) {
      arguments.list(option, value, help, [&out](const std::string& word) -> Result<void> {
        ASSIGN_OR_RETURN(const uint64_t number, read_number(word, 1, kMaxPolicyNumber));
        out.push_back(static_cast<uint32_t>(number));
        return {};
      });
    };
    durations("--critical-path", "C,...", "longest critical path allowed (as recorded)", o.critical_path_s);
    durations("--checkpoint-period", "T,...", "longest CPU time between checkpoints of a unit (as recorded)",
              o.checkpoint_period_s);
    durations("--skew", "S,...", "place each unit's first checkpoint at a random time up to S (all at T)", o.skew_s);
    arguments.choice(
        "--clock", "C",
        "place checkpoints by each unit's CPU time (cpu), or by the time that would elapse for all if each "
        "unit had a processor of its own and waited for messages only (real)",
        clock_names(), [&o](const std::string& text) { o.clock = named<PlacementClock>(clock_names(), text); });
    numbers("--set-bound", "N,...", "replay-set: largest number of intervals in a replay set (16)", o.set_bound);
    numbers("--multiplicity", "M,...", "critical-path-multiplicity: largest number of intervals of one unit (2)",
            o.multiplicity);
    arguments.flag("--approximate", o.approximate,
                   "critical-path-multiplicity: remember only the first and last interval of a unit");
    numbers("--cores", "J,...", "number of intervals executed at once (as recorded, or one per processor)", o.cores);
    arguments.choice("--schedule", "S",
                     "how a replay uses processors: list: J cores; cyclic: one for each unit, shared by its intervals; "
                     "frontier: one for each unit, which executes it once, from its earliest interval on (list)",
                     schedule_names(),
                     [&o](const std::string& text) { o.schedule = named<ScheduleKind>(schedule_names(), text); });
    arguments.flag("--measure", o.measure,
                   "also re-drive every interval, to time policies that keep what the trace holds");
    arguments.flag("--optimal", o.optimal,
                   "also compute a lower bound of what any policy that promises the same must keep");
    arguments.flag(
        "--stored-sets", o.stored_sets,
        "also store each interval's replay set as it is known while the program runs; --json: its bytes, and "
        "how long planning takes with it and without");
    declare_synthetic(arguments);
    arguments.json(o.json);
    arguments.flag("--csv", o.csv, "write comma-separated values");
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    if (options_.json && options_.csv) return usage("--json and --csv cannot be combined");
    ASSIGN_OR_RETURN(options_.trace, only_trace(arguments));
    options_.jobs = processor_count();
    if (!synthetic_.pattern.empty()) {
      if (arguments.has_words()) return usage("--synthetic takes no TRACE");
      if (options_.measure) return usage("--measure needs a TRACE, not --synthetic");
      options_.synthetic = synthetic_;
    } else if (arguments.count("--units") + arguments.count("--messages") > 0) {
      return usage("--units and --messages need --synthetic");
    } else if (arguments.count("--seed") > 0 && options_.skew_s.empty()) {
      return usage("--seed needs --skew or --synthetic");
    }
    unsigned known = kCores;  // a replay of any policy's decisions has them
    for (const PolicyInfo& policy : policies()) {
      if (is_evaluated(policy, options_)) known |= policy.parameters;
    }
    if (const auto option = unknown_parameter(arguments, known)) {
      return usage(fmt::format("{}: none of these policies has such a parameter", *option));
    }
    return {};
  }

  Result<int> run() override { return evaluate(options_); }

 private:
  template <typename Enum>
  static Enum named(const std::vector<std::string>& names, const std::string& text) {
    return static_cast<Enum>(std::find(names.begin(), names.end(), text) - names.begin());
  }

  void declare_synthetic(Arguments& arguments) {
    arguments.choice(
        "--synthetic", "PATTERN",
        fmt::format("evaluate a generated execution instead of a trace: {}", fmt::join(synthetic_patterns(), ", ")),
        synthetic_patterns(), [this](const std::string& text) { synthetic_.pattern = text; });
    arguments.number("--units", "U", 2, 65536, fmt::format("number of units to generate ({})", synthetic_.units),
                     [this](uint64_t number) { synthetic_.units = static_cast<uint32_t>(number); });
    arguments.number("--messages", "K", 1, 100'000'000,
                     fmt::format("number of messages to generate ({})", synthetic_.messages),
                     [this](uint64_t number) { synthetic_.messages = number; });
    arguments.number("--seed", "X", 0, UINT64_MAX, "seed for random choices (1)",
                     [this](uint64_t number) { options_.seed = synthetic_.seed = number; });
  }

  SyntheticOptions synthetic_;
};

}  // namespace

std::unique_ptr<Command> make_evaluate_command() { return std::make_unique<EvaluateCommand>(kEvaluateText); }

}  // namespace redrive
