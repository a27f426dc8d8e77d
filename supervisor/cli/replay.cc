// redrive replay: plans each interval, re-drives the intervals of its replay set at the same time, and reports. Or
// re-drives all intervals together.
#include "supervisor/cli/replay.h"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/mutex.h"
#include "base/notice.h"
#include "base/parallel.h"
#include "base/text.h"
#include "checkpoint/criu_restore.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/host.h"
#include "supervisor/cli/progress.h"
#include "supervisor/cli/shared_options.h"
#include "supervisor/cli/time_of_day.h"
#include "supervisor/cli/words.h"
#include "supervisor/plan/graph.h"
#include "supervisor/replay/replay_set.h"
#include "supervisor/replay/whole_replay.h"

namespace redrive {
namespace {

using Json = nlohmann::ordered_json;

struct Request {
  UnitId unit = 0;
  IntervalIndex interval = 0;
};

struct IntervalReport {
  Request request;
  size_t replay_set_size = 0;
  double seconds = 0;
  bool verified = false;
  std::string unverified;  // as in a Replayer's Outcome
  std::optional<Divergence> divergence;
  std::optional<Error> error;
  std::vector<uint64_t> arrivals;  // with --total-order: the receives, in the order in which they happened
};

struct Work {
  const SetRun& set;
  const ReplayOptions& options;
};

// Re-drives one interval with everything that it needs, using one thread for each interval of the set.
IntervalReport redrive_interval(const Work& work, const Request& request) {
  const auto started = std::chrono::steady_clock::now();
  IntervalReport report{request, 0, 0, false, {}, std::nullopt, std::nullopt, {}};
  // --all means everything that exists, and nothing exists of this interval.
  const bool reachable = work.set.graph.rdg().units.at(request.unit)[request.interval].reachable;
  if (work.options.all && !reachable) {
    if (work.options.verify) report.unverified = kUnreachable;
    return report;
  }
  const auto until = work.options.until ? std::optional<EventIndex>(*work.options.until) : std::nullopt;
  const auto planned = work.set.graph.plan(request.unit, request.interval, until);
  if (!planned || !planned->plan) {
    report.error = planned ? Error{describe(*planned->error)} : planned.error();
    return report;
  }
  const auto& set = planned->plan->replay_set;
  report.replay_set_size = set.size();
  const auto run = run_set(work.set, *planned->plan, [&](size_t i) {
    ReplayerOptions how;
    how.verify = work.options.verify && i == 0;
    how.output = work.options.output && i == 0;
    how.started = started;
    return how;
  });
  if (!run) {
    report.error = run.error();
    return report;
  }
  const auto& outcomes = run->members;
  report.arrivals = run->arrivals;
  report.seconds = outcomes[0] ? outcomes[0]->seconds
                               : std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  for (const auto& outcome : outcomes) {
    if (!outcome && !report.error) report.error = outcome.error();
    if (outcome && outcome->divergence) report.divergence = outcome->divergence;
  }
  // Intervals that waited for a diverged one failed because of it.
  if (report.divergence) report.error.reset();
  if (report.error || report.divergence) return report;
  report.verified = outcomes[0]->verified;
  report.unverified = outcomes[0]->unverified;
  return report;
}

// Re-drives all intervals of the trace together. `arrivals`: as in a IntervalReport, but of all intervals.
Result<std::vector<IntervalReport>> redrive_whole(const Work& work, const std::function<void()>& advance,
                                                  std::vector<uint64_t>& arrivals) {
  ASSIGN_OR_RETURN(WholeOutcome whole, redrive_once(work.set, work.options.verify, advance));
  std::vector<IntervalReport> reports;
  for (auto& its : whole.intervals) {
    reports.push_back(
        {{its.unit, its.interval}, 1, its.seconds, its.verified, its.unverified, its.divergence, its.error, {}});
  }
  arrivals = std::move(whole.arrivals);
  return reports;
}

// Whether the recorder has noted the state in which the interval's program ended.
bool ends_in_known_state(const Trace& trace, const Rdg& graph, const Request& request) {
  const IntervalEnd* const end = trace.interval_end(request.unit, request.interval);
  return end && !end->state.empty() && graph.units.at(request.unit)[request.interval].end_event == end->end_event;
}

// Whether to say so if --verify compares no state: unless an interval ends where no state was noted.
bool expects_state(const Trace& trace, const Rdg& graph, const Request& request, const ReplayOptions& options) {
  return options.until || ends_in_image(trace, graph, request.unit, request.interval) ||
         ends_in_known_state(trace, graph, request);
}

// Whether it took longer than the trace's bound. The bound does not apply to intervals that are re-driven all together.
bool is_late(const Trace& trace, const ReplayOptions& options, const IntervalReport& report) {
  const Settings& settings = trace.settings();
  return !options.once && !report.error && settings.keeps_bound() && report.seconds > settings.bound_s;
}

void print_divergence(const Trace& trace, const IntervalReport& report) {
  const Divergence& d = *report.divergence;
  // Up to and including the event, unless it is in another interval of the replay set.
  const bool own = d.unit == report.request.unit && d.interval == report.request.interval;
  print_divergence(trace, d,
                   fmt::format("{}:{}{}", report.request.unit, report.request.interval, own ? "" : " --verify"));
}

Json to_json(const Trace& trace, const Rdg& graph, const IntervalReport& report, const ReplayOptions& options) {
  Json out{{"unit", report.request.unit},
           {"name", trace.unit_name(report.request.unit)},
           {"interval", report.request.interval},
           {"replay_set_size", report.replay_set_size},
           {"seconds", report.seconds},
           {"bound_s", trace.settings().bound_s},
           {"late", is_late(trace, options, report)},
           {"verified", report.verified},
           {"unverified", report.unverified.empty() ? Json() : Json(report.unverified)},
           {"cut", is_cut(trace, graph, report.request.unit, report.request.interval)},
           {"divergence", nullptr},
           {"error", nullptr}};
  if (report.divergence) {
    const Divergence& d = *report.divergence;
    out["divergence"] = {{"unit", d.unit},
                         {"interval", d.interval},
                         {"event", d.event},
                         {"expected", d.expected},
                         {"found", d.found},
                         {"stack", d.stack},
                         {"disassembly", d.disassembly}};
  }
  if (report.error) out["error"] = report.error->message;
  if (options.total_order && !options.once) out["arrivals"] = report.arrivals;
  return out;
}

Result<std::vector<Request>> requests_of(const Trace& trace, const ReplayOptions& options) {
  std::vector<Request> requests;
  if (options.all) {
    for (const auto& unit : trace.units()) {
      for (const auto& interval : trace.intervals(unit.unit)) requests.push_back({unit.unit, interval.interval});
    }
    return requests;
  }
  if (options.at) {
    std::optional<UnitId> unit;
    if (!options.unit_text.empty()) {
      ASSIGN_OR_RETURN(unit, trace.find_unit(options.unit_text));
    }
    ASSIGN_OR_RETURN(const auto found, intervals_at(trace, *options.at, options.utc, unit));
    for (const Selection& interval : found) requests.push_back({interval.unit, interval.first});
    return requests;
  }
  UnitSpec spec{options.unit_text, options.first_interval, options.last_interval};
  ASSIGN_OR_RETURN(const Selection selected, select(trace, spec));
  if (options.until) TRY(check_until(trace, selected.unit, selected.first, *options.until));
  for (IntervalIndex i = selected.first; i <= selected.last; ++i) requests.push_back({selected.unit, i});
  return requests;
}

class Progress {
 public:
  Progress(bool shown, size_t total) : line_(shown && total > 1), total_(total) {}
  void advance() {  // called by any thread
    const Lock lock(mutex_);
    ++done_;
    line_.show(fmt::format("{}/{} intervals", done_, total_));
  }

 private:
  const ProgressLine line_;
  const size_t total_;
  Mutex mutex_;
  size_t done_ GUARDED_BY(mutex_) = 0;
};

void print_table(const Trace& trace, const Rdg& graph, const std::vector<IntervalReport>& reports,
                 const ReplayOptions& options) {
  fmt::print("{:<24} {:>8} {:>10} {:>9}  {}\n", "UNIT", "INTERVAL", "REPLAY SET", "SECONDS", "RESULT");
  for (const auto& report : reports) {
    const auto& [unit, interval] = report.request;
    const bool image = ends_in_image(trace, graph, unit, interval);
    const std::string result = report.error        ? "not re-driven: " + report.error->message
                               : report.divergence ? fmt::format("DIVERGED at event {}", report.divergence->event)
                               : !graph.units.at(unit)[interval].reachable
                                   ? std::string("nothing to re-drive: ") + kUnreachable
                               : is_cut(trace, graph, unit, interval)
                                   ? "ok up to where the recorder was stopped: later events need what it did not write"
                               : !options.verify          ? "ok"
                               : report.verified && image ? "ok, state equals the next checkpoint"
                               : report.verified          ? "ok, state equals that at the program's end"
                               : expects_state(trace, graph, report.request, options)
                                   ? "ok, not verified: " + report.unverified
                                   : "ok, every event equal; there is no state to compare with";
    fmt::print("{:<24} {:>8} {:>10} {:>9.3f}  {}{}\n", printable(trace.unit_name(unit)), interval,
               report.replay_set_size, report.seconds, is_late(trace, options, report) ? "LATE; " : "",
               printable(result));
  }
}

// Totals over all intervals.
struct Summary {
  size_t divergences = 0, not_verified = 0, late = 0;
  double whole_s = 0, slowest_s = 0;
  std::optional<Error> error;  // the first
};

Summary summarize(const Trace& trace, const Rdg& graph, const std::vector<IntervalReport>& reports,
                  const ReplayOptions& options) {
  Summary summary;
  for (const auto& report : reports) {
    const bool should_verify = options.verify && expects_state(trace, graph, report.request, options);
    summary.divergences += report.divergence.has_value();
    summary.not_verified += report.error.has_value() || (should_verify && !report.verified);
    summary.late += is_late(trace, options, report);
    summary.slowest_s = std::max(summary.slowest_s, report.seconds);
    if (report.error && !summary.error) summary.error = report.error;
  }
  return summary;
}

void print_summary(const Trace& trace, const Summary& summary, size_t intervals, const ReplayOptions& options) {
  const Settings& settings = trace.settings();
  fmt::print("{}, {}, {} not verified, {}slowest {:.3f} s, {}\n", counted(intervals, "interval"),
             counted(summary.divergences, "divergence"), summary.not_verified,
             summary.late ? fmt::format("{} late, ", summary.late) : "", summary.slowest_s,
             options.once             ? fmt::format("all in {:.3f} s", summary.whole_s)
             : settings.keeps_bound() ? fmt::format("bound {:g} s", settings.bound_s)
                                      : "no bound: see redrive prepare");
}

// Keeps memory that was freed, for all threads together (malloc(3), mallopt(3)). Replays use much memory for a short
// time, and what the kernel gives again costs a page fault for each page: they take up to a tenth longer without this.
void keep_freed_memory() {
  constexpr int kArenas = 2, kLargest = 32 << 20, kMost = 256 << 20;
  mallopt(M_ARENA_MAX, kArenas);
  mallopt(M_MMAP_THRESHOLD, kLargest);
  mallopt(M_TRIM_THRESHOLD, kMost);
}

Result<int> replay(const ReplayOptions& options) {
  keep_freed_memory();
  if (!options.breaks.empty()) return replay_to_breakpoint(options);
  const auto started = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const auto engine, engine_of(options));
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  Followed followed;
  if (options.follow) {
    ASSIGN_OR_RETURN(followed, follow_recording(directory, options, engine.get()));
  }
  ASSIGN_OR_RETURN(const auto trace, Trace::open(directory));
  say_if_recorded_on(*trace);
  ASSIGN_OR_RETURN(const auto requests, requests_of(*trace, options));
  ASSIGN_OR_RETURN(DependenceGraph dependences, DependenceGraph::open(*trace));
  const Rdg& graph = dependences.rdg();
  trap_own_instructions();
  const std::vector<int> processors = usable_processors(options.jobs);
  const auto tier = options.in_process ? make_tier() : nullptr;
  const SetRun set{*trace, dependences, processors, tier.get(), options.total_order, engine.get()};
  const Work work{set, options};
  const double opening_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  std::vector<IntervalReport> reports;
  std::vector<uint64_t> arrivals;
  {
    Progress progress(options.progress && !options.json && !options.output, requests.size());
    if (options.once) {
      ASSIGN_OR_RETURN(reports, redrive_whole(
                                    work, [&] { progress.advance(); }, arrivals));
    } else {
      for (const auto& request : requests) {
        reports.push_back(redrive_interval(work, request));
        reports.back().seconds += opening_s;  // as if it were asked for alone
        progress.advance();
      }
    }
  }
  Summary summary = summarize(*trace, graph, reports, options);
  const std::set<EventRef> shown = followed.diverged;
  for (const auto& report : reports) {
    if (report.divergence) followed.diverged.erase({report.divergence->unit, report.divergence->event});
  }
  summary.whole_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (options.json) {
    Json list = Json::array();
    for (const auto& report : reports) list.push_back(to_json(*trace, graph, report, options));
    Json out{{"intervals", list},
             {"opening_s", opening_s},
             {"whole_s", summary.whole_s},
             {"max_seconds", summary.slowest_s},
             {"divergences", summary.divergences},
             {"not_verified", summary.not_verified},
             {"late", summary.late}};
    if (options.total_order && options.once) out["arrivals"] = arrivals;
    if (options.follow) {
      out["followed"] = followed.intervals;
      out["followed_divergences"] = followed.diverged.size();
    }
    print_json(out);
  } else if (!options.output) {
    print_table(*trace, graph, reports, options);
    print_summary(*trace, summary, reports.size(), options);
    if (options.follow) {
      fmt::print("{} re-driven while the trace was being recorded, {} that the whole did not show\n",
                 counted(followed.intervals, "interval"), counted(followed.diverged.size(), "divergence"));
    }
  }
  for (const auto& report : reports) {
    if (report.divergence && !shown.contains({report.divergence->unit, report.divergence->event})) {
      print_divergence(*trace, report);
    }
  }
  if (summary.divergences + followed.diverged.size()) return static_cast<int>(Status::divergence);
  if (summary.error) return *summary.error;
  return static_cast<int>(summary.late ? kLate : Status::ok);
}

constexpr CommandText kReplayText{
    "replay",
    "redrive replay [--verify] [--output] [--jobs N] [--until EVENT] [--total-order] [--interception TIER] "
    "[--restore-engine ENGINE] [--json] [TRACE] UNIT[:I[-J]] | --at T [--utc] [TRACE] [UNIT] | --all [--once | "
    "--follow] [TRACE] | "
    "--break UNIT@EVENT ... [--memory UNIT:ADDRESS+LENGTH ...] [--inspect] [TRACE]",
    "re-drive intervals of a unit, or all units up to a distributed breakpoint",
    "Without I, all intervals of the unit are re-driven.\n",
    {kTraceWord, kUnitWord, kIntervalsWord, kMomentWord}};

class ReplayCommand : public CommandWith<ReplayOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    ReplayOptions& o = options_;
    arguments.flag("--all", o.all, "re-drive every interval of every unit");
    arguments.flag("--once", o.once, "with --all: execute every interval once, all of them together");
    arguments.flag("--verify", o.verify, "compare registers and memory with the next checkpoint");
    arguments.flag("--follow", o.follow,
                   "with --all: verify a trace that is being recorded, in parts as it grows, and once as a whole");
    arguments.flag("--output", o.output, "show what the unit wrote to standard output and error instead of the table");
    o.jobs = processor_count();
    add_jobs(arguments, "number of intervals to execute at once (one per processor)", o.jobs);
    add_until(arguments, o.until);
    add_moment(arguments, "--at", "re-drive the intervals that ran at this time", o.at);
    add_utc(arguments, o.utc);
    arguments.flag("--total-order", o.total_order, "let the receives of all units happen in the recorded order");
    add_break(arguments, "stop all units when UNIT is right before EVENT, and show them; may be repeated", o.breaks);
    arguments.each("--memory", "UNIT:ADDRESS+LENGTH", "with --break: show this memory",
                   [&o](const std::string& text) -> Result<void> {
                     ASSIGN_OR_RETURN(const MemorySpec memory, parse_memory_spec(text));
                     o.memory.push_back(memory);
                     return {};
                   });
    arguments.flag("--inspect", o.inspect, "with --break: read commands from standard input at the breakpoint");
    add_interception(arguments, o.in_process);
    arguments.choice("--restore-engine", "ENGINE", "what restores checkpoints: auto, criu, own (auto)",
                     {"auto", "criu", "own"}, [&o](const std::string& text) { o.by_criu = text == "criu"; });
    arguments.json(o.json);
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    ReplayOptions& o = options_;
    const auto& words = arguments.given_words();
    if (!o.breaks.empty()) return finish_break(words);
    if (!o.memory.empty() || o.inspect) return usage("--memory and --inspect need --break");
    if (o.utc && !o.at) return usage("--utc needs --at");
    if (o.output && o.json) return usage("--output and --json cannot be combined");
    if (o.at) return finish_at(words);
    if (o.all) {
      if (o.until) return usage("--until needs a single interval, not --all");
      if (words.size() > 1) return usage("--all takes a TRACE, not a UNIT");
      if (o.output && (o.once || o.follow)) return usage("--output cannot be combined with --once or --follow");
      if (o.follow) o.once = o.verify = true;
      if (!words.empty()) o.trace = words[0];
      return {};
    }
    if (o.once) return usage("--once needs --all");
    if (o.follow) return usage("--follow needs --all");
    if (words.empty() || words.size() > 2) return usage("expected [TRACE] UNIT[:I[-J]], or --all");
    ASSIGN_OR_RETURN(const UnitSpec spec, parse_unit_spec(words.back()));
    if (o.until && !spec.single()) return usage("--until needs a single interval: UNIT:I");
    if (words.size() == 2) o.trace = words[0];
    o.unit_text = spec.unit;
    o.first_interval = spec.first_interval;
    o.last_interval = spec.last_interval;
    return {};
  }

  Result<int> run() override {
    TRY(prepare_to_trace());
    options_.progress = isatty(STDERR_FILENO) != 0;
    return replay(options_);
  }

 private:
  Result<void> finish_at(const std::vector<std::string>& words) {
    ReplayOptions& o = options_;
    if (o.all || o.once || o.follow || o.until) {
      return usage("--at cannot be combined with --all, --once, --follow or --until");
    }
    if (words.size() > 2) return usage("--at takes [TRACE] [UNIT]");
    if (words.size() == 2 || (words.size() == 1 && names_trace(words[0]))) o.trace = words[0];
    if (words.size() == 2 || (words.size() == 1 && o.trace.empty())) {
      ASSIGN_OR_RETURN(const UnitSpec spec, parse_unit_spec(words.back()));
      if (spec.first_interval) return usage("--at takes a UNIT without intervals");
      o.unit_text = spec.unit;
    }
    return {};
  }
  Result<void> finish_break(const std::vector<std::string>& words) {
    ReplayOptions& o = options_;
    if (o.all || o.once || o.follow || o.until || o.output || o.at) {
      return usage("--break cannot be combined with --all, --at, --once, --follow, --until or --output");
    }
    if (words.size() > 1) return usage("--break takes a TRACE, not a UNIT");
    if (o.inspect && o.json) return usage("--inspect and --json cannot be combined");
    if (!words.empty()) o.trace = words[0];
    return {};
  }
};

}  // namespace

Result<std::unique_ptr<RestoreEngine>> engine_of(const ReplayOptions& options) {
  if (!options.by_criu) return std::unique_ptr<RestoreEngine>();
  ASSIGN_OR_RETURN(auto engine, CriuEngine::make());
  return std::unique_ptr<RestoreEngine>(std::move(engine));
}

void say_if_recorded_on(const Trace& trace) {
  if (!trace.recording()) return;
  notice("{} is still being recorded; what has been written so far is re-driven", trace.directory());
}

std::unique_ptr<Command> make_replay_command() { return std::make_unique<ReplayCommand>(kReplayText); }

}  // namespace redrive
