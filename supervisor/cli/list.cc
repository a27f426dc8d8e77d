// redrive ls: the traces below trace_home(), or the units and intervals of one trace.
#include "supervisor/cli/list.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "logstore/home.h"
#include "logstore/trace.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/join_text.h"
#include "supervisor/cli/list_checkpoints.h"
#include "supervisor/cli/time_of_day.h"
#include "supervisor/cli/words.h"
#include "supervisor/plan/certificate.h"
#include "supervisor/plan/graph.h"
#include "supervisor/plan/tally.h"

namespace redrive {

namespace {

using Json = nlohmann::ordered_json;

// Whether and how a recording ended, in one word; end().reason has the recorder's own words.
const char* state_of(const Trace& trace) {
  if (trace.recording()) return "recording";
  if (!trace.finished()) return "interrupted";
  return trace.end().reason == "interrupted" ? "interrupted" : "finished";
}

std::string started_text(const Trace& trace, bool utc) {
  const std::string text = day_text(trace.settings().started_unix_ns, utc);
  return text.substr(0, text.find('.'));
}

// A trace below trace_home(); `opened` is an error if it cannot be read.
struct Listed {
  std::string name;
  Result<std::shared_ptr<Trace>> opened;
  int64_t started_unix_ns = 0;

  const Trace& trace() const { return *opened.value(); }
  bool ended() const { return opened && trace().finished(); }
  std::optional<int32_t> exit_status() const { return opened ? redrive::exit_status(trace()) : std::nullopt; }
};

bool matches(const Listed& listed, const ListOptions& options) {
  if (options.trace && fnmatch(options.trace->c_str(), listed.name.c_str(), 0) != 0) return false;
  if (options.failed && listed.exit_status().value_or(0) == 0) return false;
  if (!options.since) return true;
  const auto since = options.since->time_since_epoch();
  return std::chrono::nanoseconds(listed.started_unix_ns) >= since;
}

Result<std::vector<Listed>> listed_traces(const ListOptions& options) {
  ASSIGN_OR_RETURN(const auto names, list_traces());
  std::vector<Listed> all;
  for (const auto& name : names) {
    Listed listed{name, Trace::open((std::filesystem::path(trace_home()) / name).string()), 0};
    if (listed.opened) listed.started_unix_ns = listed.trace().settings().started_unix_ns;
    if (matches(listed, options)) all.push_back(std::move(listed));
  }
  // Unreadable ones come last.
  std::stable_sort(all.begin(), all.end(),
                   [](const Listed& a, const Listed& b) { return a.started_unix_ns > b.started_unix_ns; });
  if (options.most && all.size() > *options.most) all.erase(all.begin() + static_cast<long>(*options.most), all.end());
  return all;
}

// NODENAME of "NODENAME (SYSNAME RELEASE MACHINE)".
std::string host_name(const Trace& trace) {
  const std::string& host = trace.settings().host;
  return host.substr(0, host.find(" ("));
}

// None if nothing is known of replays, or it cannot be read.
std::optional<Certificate> known_certificate(const Trace& trace) {
  const auto certificate = certificate_of(trace);
  return certificate ? certificate.value() : std::nullopt;
}

// The bound, and whether replays keep it.
std::string bound_text(const Trace& trace) {
  if (!trace.settings().keeps_bound()) return "-";
  const std::string bound = format_duration(trace.settings().bound_s);
  const auto certificate = known_certificate(trace);
  if (!certificate) return bound + "?";
  return certificate->is_kept() ? bound : bound + ", late";
}

Json to_json(const Listed& listed) {
  Json row = {{"name", listed.name}};
  if (!listed.opened) {
    row["state"] = "unreadable";
    row["error"] = listed.opened.error().message;
    return row;
  }
  const Trace& trace = listed.trace();
  row["directory"] = trace.directory();
  row["started"] = rfc3339(trace.settings().started_unix_ns);
  row["started_unix_s"] = seconds(trace.settings().started_unix_ns);
  row["command"] = trace.settings().command;
  row["duration_s"] = listed.ended() ? Json(trace.end().wall_s) : Json();
  row["trace_bytes"] = trace.size_on_disk();
  row["state"] = state_of(trace);
  const auto status = listed.exit_status();
  row["exit_status"] = status ? Json(*status) : Json();
  row["host"] = host_name(trace);
  row["bound_s"] = trace.settings().keeps_bound() ? Json(trace.settings().bound_s) : Json();
  const auto certificate = known_certificate(trace);
  row["bound_kept"] = certificate ? Json(certificate->is_kept()) : Json();
  return row;
}

std::vector<std::string> to_cells(const Listed& listed, bool utc) {
  if (!listed.opened) return {listed.name, "", "", "", "", "", "unreadable", "", listed.opened.error().message};
  const Trace& trace = listed.trace();
  const auto status = listed.exit_status();
  return {listed.name,
          started_text(trace, utc),
          listed.ended() ? format_duration(trace.end().wall_s) : "-",
          status ? fmt::format("{}", *status) : "-",
          format_size(trace.size_on_disk()),
          bound_text(trace),
          state_of(trace),
          host_name(trace),
          join_words(trace.settings().command)};
}

Result<int> list_traces_command(const ListOptions& options) {
  const std::string home = trace_home();
  if (home.empty()) return no_trace_home();
  ASSIGN_OR_RETURN(const auto all, listed_traces(options));
  if (options.json) {
    Json rows = Json::array();
    for (const auto& listed : all) rows.push_back(to_json(listed));
    print_json({{"home", home}, {"traces", rows}});
    return 0;
  }
  if (all.empty()) {
    fmt::print("no {}traces in {}\n", options.trace || options.filters() ? "matching " : "", printable(home));
    return 0;
  }
  Columns columns({"NAME", "STARTED", ">DURATION", ">STATUS", ">SIZE", ">BOUND", "STATE", "HOST", "COMMAND"});
  for (const auto& listed : all) columns.add(to_cells(listed, options.utc));
  columns.print();
  return 0;
}

bool is_pattern(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

struct IntervalRow {
  IntervalRecord record;
  IntervalExtent extent;
  IntervalTimes times;
  Tally tally;
};
struct UnitRows {
  UnitRecord unit;
  std::string name;
  std::string command;
  std::vector<IntervalRow> intervals;
};

Result<std::vector<UnitRows>> read_rows(const Trace& trace) {
  std::vector<UnitRows> units;
  for (const auto& unit : trace.units()) {
    UnitRows rows{unit, trace.unit_name(unit.unit), "", {}};
    for (const auto& record : trace.intervals(unit.unit)) {
      IntervalRow row{record, interval_extent(trace, unit.unit, record.interval), {}, {}};
      ASSIGN_OR_RETURN(row.times, interval_times(trace, unit.unit, record.interval));
      TRY(trace.for_each_event(unit.unit, row.extent.first_event, row.extent.end_event,
                               [&](EventIndex, const Event& event) {
                                 row.tally.add(unit.unit, event);
                                 return true;
                               }));
      rows.command = record.command;
      rows.intervals.push_back(row);
    }
    units.push_back(std::move(rows));
  }
  return units;
}

// An image that should exist but does not.
bool lost(const Trace& trace, const IntervalRecord& interval) {
  return !startable(interval) && !(trace.finished() && trace.end().skipped_checkpoints == 0);
}
std::string kind_of(const Trace& trace, const IntervalRecord& interval) {
  return startable(interval) || lost(trace, interval) ? name(interval.kind) : "virtual";
}

Json to_json(const std::optional<WallTime>& time) { return time ? Json(rfc3339(time->unix_ns)) : Json(); }

Json to_json(const Trace& trace, const IntervalRow& row) {
  return {{"interval", row.record.interval},
          {"began", to_json(row.times.began)},
          {"ended", to_json(row.times.ended)},
          {"checkpoint_kind", kind_of(trace, row.record)},
          {"first_event", row.extent.first_event},
          {"events", row.extent.end_event - row.extent.first_event},
          {"cpu_s", seconds(row.extent.cpu_ns)},
          {"messages", row.tally.messages},
          {"logged_messages", row.tally.logged_messages},
          {"pause_s", seconds(row.record.pause_ns)},
          {"startable", startable(row.record)},
          {"pid", row.record.pid},
          {"command", row.record.command}};
}

void print_units_json(const Trace& trace, const std::vector<UnitRows>& units) {
  Json list = Json::array();
  for (const auto& rows : units) {
    Json intervals = Json::array();
    for (const auto& row : rows.intervals) intervals.push_back(to_json(trace, row));
    list.push_back({{"unit", rows.unit.unit},
                    {"name", rows.name},
                    {"pid", rows.unit.pid},
                    {"command", rows.command},
                    {"joined", rows.unit.joined},
                    {"parent_unit", rows.unit.parent.unit},
                    {"intervals", intervals}});
  }
  print_json({{"directory", trace.directory()}, {"state", state_of(trace)}, {"units", list}});
}

std::string time_cell(const std::optional<WallTime>& time, bool utc) {
  return time ? day_text(time->unix_ns, utc) : "-";
}

void print_units(const Trace& trace, const std::vector<UnitRows>& units, const ListOptions& options) {
  Columns unit_columns({">UNIT", "NAME", ">PID", ">PARENT", ">INTERVALS", "JOINED", "COMMAND"});
  std::vector<std::string> headings = {">UNIT", ">INTERVAL", "CHECKPOINT", ">FIRST EVENT", ">EVENTS",
                                       ">CPU",  ">MESSAGES", ">LOGGED",    ">PAUSE"};
  if (options.times) headings.insert(headings.end(), {"BEGAN", "ENDED"});
  Columns columns(std::move(headings));
  const auto number = [](uint64_t value) { return fmt::format("{}", value); };
  for (const auto& rows : units) {
    unit_columns.add({number(rows.unit.unit), rows.name, number(static_cast<uint64_t>(rows.unit.pid)),
                      rows.unit.parent.unit ? number(rows.unit.parent.unit) : "-", number(rows.intervals.size()),
                      rows.unit.joined.empty() ? "-" : fmt::format("{}", fmt::join(rows.unit.joined, ",")),
                      rows.command});
    for (const auto& row : rows.intervals) {
      std::vector<std::string> cells = {number(rows.unit.unit),
                                        number(row.record.interval),
                                        kind_of(trace, row.record) + (lost(trace, row.record) ? " (lost)" : ""),
                                        number(row.extent.first_event),
                                        number(row.extent.end_event - row.extent.first_event),
                                        format_duration(seconds(row.extent.cpu_ns)),
                                        number(row.tally.messages),
                                        number(row.tally.logged_messages),
                                        format_duration(seconds(row.record.pause_ns))};
      if (options.times) {
        cells.push_back(time_cell(row.times.began, options.utc));
        cells.push_back(time_cell(row.times.ended, options.utc));
      }
      columns.add(std::move(cells));
    }
  }
  unit_columns.print();
  for (const auto& join : describe_joins(trace)) fmt::print("{}\n", join);
  fmt::print("\n");
  columns.print();
}

// The first event that was not before this moment, as far as that is known.
Result<EventIndex> event_at(const Trace& trace, const Selection& interval, int64_t at_ns) {
  const IntervalExtent extent = interval_extent(trace, interval.unit, interval.first);
  EventIndex found = extent.end_event;
  TRY(trace.for_each_event(interval.unit, extent.first_event, extent.end_event,
                           [&](EventIndex index, const Event& event) {
                             const auto time = wall_clock(trace).at(event.time);
                             const bool later = time && time->unix_ns >= at_ns;
                             if (later) found = index;
                             return !later;
                           }));
  return found;
}

Result<int> list_at(const Trace& trace, const ListOptions& options) {
  ASSIGN_OR_RETURN(const auto intervals, intervals_at(trace, *options.at, options.utc, std::nullopt));
  ASSIGN_OR_RETURN(const RecordedSpan span, recorded_span(trace));
  ASSIGN_OR_RETURN(const Moment at, parse_moment(*options.at, options.utc, span));
  Json list = Json::array();
  Columns columns({">UNIT", "NAME", ">INTERVAL", ">EVENT", "BEGAN", "ENDED", ">PID", "COMMAND"});
  for (const Selection& interval : intervals) {
    const IntervalRecord& record = trace.intervals(interval.unit)[interval.first];
    ASSIGN_OR_RETURN(const IntervalTimes times, interval_times(trace, interval.unit, interval.first));
    ASSIGN_OR_RETURN(const EventIndex event, event_at(trace, interval, at.first_ns));
    list.push_back({{"unit", interval.unit},
                    {"name", trace.unit_name(interval.unit)},
                    {"interval", interval.first},
                    {"event", event},
                    {"began", to_json(times.began)},
                    {"ended", to_json(times.ended)},
                    {"pid", record.pid},
                    {"command", record.command}});
    columns.add({fmt::format("{}", interval.unit), trace.unit_name(interval.unit), fmt::format("{}", interval.first),
                 fmt::format("{}", event), time_cell(times.began, options.utc), time_cell(times.ended, options.utc),
                 fmt::format("{}", record.pid), record.command});
  }
  if (options.json) {
    print_json({{"directory", trace.directory()}, {"at", rfc3339(at.first_ns)}, {"intervals", list}});
  } else {
    columns.print();
  }
  return 0;
}

Result<int> list(const ListOptions& options) {
  if (!options.trace && !options.at && !options.checkpoints) return list_traces_command(options);
  const auto found = find_trace(options.trace.value_or(""));
  const bool of_one = options.at || options.checkpoints;
  if (!found && options.trace && !of_one && is_pattern(*options.trace)) return list_traces_command(options);
  ASSIGN_OR_RETURN(const std::string directory, found);
  if (options.filters()) {
    return Error{fmt::format("{} is a single trace: -n, --since and --failed select from several", directory),
                 Status::usage};
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<Trace> trace, Trace::open(directory));
  if (options.at) return list_at(*trace, options);
  if (options.checkpoints) return list_checkpoints(*trace, options.json);
  ASSIGN_OR_RETURN(const std::vector<UnitRows> units, read_rows(*trace));
  if (options.json) {
    print_units_json(*trace, units);
  } else {
    print_units(*trace, units, options);
  }
  return 0;
}

constexpr CommandText kListText{
    "ls",
    "redrive ls [-n N] [--since TIME] [--failed] [--utc] [--json] [PATTERN] | "
    "[--times] [--utc] [--json] TRACE | --at T [--utc] [--json] [TRACE] | --checkpoints [--json] [TRACE]",
    "list the traces, newest first, or the units and intervals of one",
    "A PATTERN such as 'make-*' selects traces by their names.\n",
    {kGivenTraceWord, {"TIME", "2h (ago), today, yesterday, 2026-11-22, or 2026-11-22 18:30"}, kMomentWord}};

class ListCommand : public CommandWith<ListOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    ListOptions& o = options_;
    arguments.json(o.json);
    arguments.words();
    arguments.number("-n", "N", 1, UINT32_MAX, "list at most N traces", [&o](uint64_t number) { o.most = number; });
    arguments.option("--since", "TIME", "list only traces that were started at this time or later",
                     [&o](const std::string& text) -> Result<void> {
                       ASSIGN_OR_RETURN(o.since, parse_time(text, std::chrono::system_clock::now()));
                       return {};
                     });
    arguments.flag("--failed", o.failed, "list only traces of programs that ended with a status other than 0");
    arguments.flag("--times", o.times, "show when intervals began and ended");
    arguments.flag("--checkpoints", o.checkpoints, "list the images of the trace, their sizes, and what they share");
    add_moment(arguments, "--at", "list the intervals of the trace that ran at this time, and the event that came next",
               o.at);
    add_utc(arguments, o.utc);
  }

  Result<void> finish(const Arguments& arguments) override {
    ASSIGN_OR_RETURN(const std::string trace, only_trace(arguments));
    if (arguments.has_words()) options_.trace = trace;
    if (options_.times && (!options_.trace || options_.at)) return usage("--times needs a TRACE, and no --at");
    if (options_.checkpoints && (options_.at || options_.times || options_.utc || options_.filters())) {
      return usage("--checkpoints cannot be combined with --at, --times, --utc, -n, --since or --failed");
    }
    return {};
  }

  Result<int> run() override { return list(options_); }
};

}  // namespace

std::unique_ptr<Command> make_list_command() { return std::make_unique<ListCommand>(kListText); }

}  // namespace redrive
