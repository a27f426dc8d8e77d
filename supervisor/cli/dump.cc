// redrive dump: prints recorded events, one per line like strace(1), or as JSON.
#include "supervisor/cli/dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "interceptors/syscall_table.h"
#include "logstore/trace.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/event_text.h"
#include "supervisor/cli/shared_options.h"
#include "supervisor/cli/time_of_day.h"
#include "supervisor/cli/words.h"
#include "supervisor/plan/graph.h"

namespace redrive {

namespace {

using Json = nlohmann::ordered_json;

const char* kind_name(EventKind kind) {
  switch (kind) {
    case EventKind::syscall:
      return "syscall";
    case EventKind::entry:
      return "entry";
    case EventKind::exit:
      return "exit";
    case EventKind::signal:
      return "signal";
    case EventKind::trap:
      return "trap";
    case EventKind::preemption:
      return "preemption";
  }
  return "?";
}

Json receive_json(const Receive& receive) {
  Json parts = Json::array();
  for (const auto& part : receive.parts) {
    parts.push_back({{"unit", part.sender.unit},
                     {"event", part.sender.event},
                     {"offset", part.offset},
                     {"length", part.length},
                     {"hash", fmt::format("{:016x}", part.hash)}});
  }
  return {{"channel", receive.channel},
          {"arrival", receive.arrival},
          {"logged", receive.logged},
          {"length", receive.length()},
          {"parts", parts}};
}

// Keys that do not apply to an event are left out.
Json event_json(UnitId unit, IntervalIndex interval, EventIndex index, const Event& event,
                const std::optional<WallTime>& time, Ended ended) {
  Json out = {{"unit", unit},           {"interval", interval},          {"event", index},
              {"thread", event.thread}, {"kind", kind_name(event.kind)}, {"repeat", event.repeat}};
  if (time) {
    out["time"] = rfc3339(time->unix_ns);
    out["time_error_s"] = seconds(time->error_ns);
  }
  if (event.cycle > 1) out["cycle"] = event.cycle;
  if (event.kind == EventKind::signal) {
    out["signal"] = event.number;
  } else if (event.kind != EventKind::trap && event.kind != EventKind::preemption) {
    out["call"] = syscall_name(event.number);
  }
  out["text"] = event_text(event);
  if (event.kind == EventKind::syscall || event.kind == EventKind::entry) out["args"] = event.args;
  if (event.kind == EventKind::syscall || event.kind == EventKind::exit) out["result"] = event.result;
  if (event.receive) out["receive"] = receive_json(*event.receive);
  if (event.send && !event.child_unit) out["send"] = {{"channel", event.send->channel}, {"length", event.send->length}};
  if (event.child_unit) out["child_unit"] = event.child_unit;
  if (event.child_thread) out["child_thread"] = event.child_thread;
  if (ended == Ended::process) out["fatal"] = true;
  if (ended == Ended::thread) out["thread_ended"] = true;
  return out;
}

// From which events to which, since the epoch.
struct TimeWindow {
  std::optional<int64_t> since_ns, until_ns;
  bool limited() const { return since_ns || until_ns; }
  bool holds(const std::optional<WallTime>& time) const {
    return !limited() ||
           (time && (!since_ns || *since_ns <= time->unix_ns) && (!until_ns || time->unix_ns <= *until_ns));
  }
  // Whether no event of an interval that ran then is in it.
  bool misses(const IntervalTimes& times) const {
    const auto give = [](const WallTime& time) { return static_cast<int64_t>(time.error_ns); };
    return (since_ns && times.ended && times.ended->unix_ns + give(*times.ended) < *since_ns) ||
           (until_ns && times.began && times.began->unix_ns - give(*times.began) > *until_ns);
  }
};

// Prints events as they are read, because a trace may be larger than memory.
class Dumper {
 public:
  Dumper(const Trace& trace, const DumpOptions& options, const TimeWindow& window)
      : trace_(trace),
        json_(options.json),
        times_(options.times || window.limited()),
        utc_(options.utc),
        window_(window) {}

  Result<void> dump(const Selection& selection) {
    for (IntervalIndex i = selection.first; i <= selection.last; ++i) {
      const IntervalExtent extent = interval_extent(trace_, selection.unit, i);
      ASSIGN_OR_RETURN(const IntervalTimes times, interval_times(trace_, selection.unit, i));
      if (window_.misses(times)) continue;
      if (!json_) print_checkpoint(selection.unit, i, times);
      TRY(trace_.for_each_event(selection.unit, extent.first_event, extent.end_event,
                                [&](EventIndex index, const Event& event) {
                                  const auto time = wall_clock(trace_).at(event.time);
                                  if (window_.holds(time)) print_event(selection.unit, i, index, event, time);
                                  return true;
                                }));
    }
    return {};
  }
  // Prints one JSON array, with one event per line.
  void begin() const {
    if (json_) fmt::print("[");
  }
  void end() const {
    if (json_) fmt::print("{}]\n", any_ ? "\n" : "");
  }

 private:
  void print_checkpoint(UnitId unit, IntervalIndex interval, const IntervalTimes& times) const {
    const IntervalRecord& record = trace_.intervals(unit)[interval];
    fmt::print("unit {} ({}), interval {}: {} checkpoint, pid {}, {}{}\n", unit, printable(trace_.unit_name(unit)),
               interval, name(record.kind), record.pid,
               times_ && times.began ? fmt::format("began {}, ", day_text(times.began->unix_ns, utc_)) : "",
               printable(record.command));
  }
  std::string time_text(const std::optional<WallTime>& time) const {
    if (!times_) return "";
    return time ? fmt::format("{} {:<9} ", clock_text(time->unix_ns, utc_), error_text(time->error_ns))
                : fmt::format("{:<25} ", "-");
  }
  void print_event(UnitId unit, IntervalIndex interval, EventIndex index, const Event& event,
                   const std::optional<WallTime>& time) {
    const Ended ended = what_ended(trace_, unit, interval, index, event);
    if (json_) {
      fmt::print("{}\n{}", any_ ? "," : "", json_line(event_json(unit, interval, index, event, time, ended)));
    } else {
      fmt::print("{:>3} {:>8} {:>3}  {}{}{}\n", unit, index, event.thread, time_text(time),
                 printable(event_text(event)), event_notes(event, ended));
    }
    any_ = true;
  }

  const Trace& trace_;
  const bool json_, times_, utc_;
  const TimeWindow window_;
  bool any_ = false;
};

// Interprets a single word.
Result<DumpOptions> resolved(const DumpOptions& options) {
  if (!options.trace_or_unit) return options;
  DumpOptions out = options;
  const std::string& word = *options.trace_or_unit;
  if (names_trace(word)) {
    out.trace = word;
  } else {
    ASSIGN_OR_RETURN(out.what, parse_unit_spec(word));
  }
  return out;
}

Result<std::vector<Selection>> selections(const Trace& trace, const std::optional<UnitSpec>& what) {
  std::vector<Selection> out;
  if (what) {
    ASSIGN_OR_RETURN(const Selection selection, select(trace, *what));
    out.push_back(selection);
    return out;
  }
  for (const auto& unit : trace.units()) {
    const size_t count = trace.intervals(unit.unit).size();
    if (count > 0) out.push_back({unit.unit, 0, static_cast<IntervalIndex>(count - 1)});
  }
  return out;
}

Result<TimeWindow> window_of(const Trace& trace, const DumpOptions& options) {
  TimeWindow window;
  if (!options.since && !options.until && !options.times) return window;
  ASSIGN_OR_RETURN(const RecordedSpan span, recorded_span(trace));
  if (options.since) {
    ASSIGN_OR_RETURN(const Moment since, parse_moment(*options.since, options.utc, span));
    window.since_ns = since.first_ns;
  }
  if (options.until) {
    ASSIGN_OR_RETURN(const Moment until, parse_moment(*options.until, options.utc, span));
    window.until_ns = until.last_ns;
  }
  if (window.since_ns && window.until_ns && *window.until_ns < *window.since_ns) {
    return Error{fmt::format("--until {} is before --since {}", *options.until, *options.since)};
  }
  return window;
}

Result<int> dump(const DumpOptions& given) {
  ASSIGN_OR_RETURN(const DumpOptions options, resolved(given));
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  ASSIGN_OR_RETURN(const std::shared_ptr<Trace> trace, Trace::open(directory));
  ASSIGN_OR_RETURN(const std::vector<Selection> wanted, selections(*trace, options.what));
  ASSIGN_OR_RETURN(const TimeWindow window, window_of(*trace, options));
  Dumper dumper(*trace, options, window);
  dumper.begin();
  for (const auto& selection : wanted) TRY(dumper.dump(selection));
  dumper.end();
  return 0;
}

constexpr CommandText kDumpText{
    "dump",
    "redrive dump [--times] [--since T] [--until T] [--utc] [--json] [TRACE] [UNIT[:I[-J]]]",
    "print the recorded events",
    "A single word is a TRACE if a trace with that name exists, and otherwise a UNIT of the latest trace.\n",
    {kTraceWord, kUnitWord, kIntervalsWord, kMomentWord}};

class DumpCommand : public CommandWith<DumpOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    arguments.flag("--times", options_.times, "show when each event was, and by how much that may be wrong");
    add_moment(arguments, "--since", "print only events from this time on; with --times", options_.since);
    add_moment(arguments, "--until", "print only events up to this time; with --times", options_.until);
    add_utc(arguments, options_.utc);
    arguments.json(options_.json);
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    const auto& words = arguments.given_words();
    if (words.size() > 2) return usage("expected [TRACE] [UNIT[:I[-J]]]");
    if (words.size() == 1) options_.trace_or_unit = words[0];
    if (words.size() == 2) {
      options_.trace = words[0];
      ASSIGN_OR_RETURN(options_.what, parse_unit_spec(words[1]));
    }
    return {};
  }

  Result<int> run() override { return dump(options_); }
};

}  // namespace

std::unique_ptr<Command> make_dump_command() { return std::make_unique<DumpCommand>(kDumpText); }

}  // namespace redrive
