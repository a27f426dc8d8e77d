// redrive dump: prints recorded events, one per line like strace(1), or as JSON.
#include "supervisor/cli/dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "interceptors/syscall_table.h"
#include "logstore/trace.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/event_text.h"
#include "supervisor/cli/shared_options.h"
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
Json event_json(UnitId unit, IntervalIndex interval, EventIndex index, const Event& event) {
  Json out = {{"unit", unit},           {"interval", interval},          {"event", index},
              {"thread", event.thread}, {"kind", kind_name(event.kind)}, {"repeat", event.repeat}};
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
  if (event.fatal) out["fatal"] = true;
  return out;
}

// Prints events as they are read, because a trace may be larger than memory.
class Dumper {
 public:
  Dumper(const Trace& trace, bool json) : trace_(trace), json_(json) {}

  Result<void> dump(const Selection& selection) {
    for (IntervalIndex i = selection.first; i <= selection.last; ++i) {
      const IntervalExtent extent = interval_extent(trace_, selection.unit, i);
      if (!json_) print_checkpoint(selection.unit, i);
      TRY(trace_.for_each_event(selection.unit, extent.first_event, extent.end_event,
                                [&](EventIndex index, const Event& event) {
                                  print_event(selection.unit, i, index, event);
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
  void print_checkpoint(UnitId unit, IntervalIndex interval) const {
    const IntervalRecord& record = trace_.intervals(unit)[interval];
    fmt::print("unit {} ({}), interval {}: {} checkpoint, pid {}, {}\n", unit, printable(trace_.unit_name(unit)),
               interval, name(record.kind), record.pid, printable(record.command));
  }
  void print_event(UnitId unit, IntervalIndex interval, EventIndex index, const Event& event) {
    if (json_) {
      fmt::print("{}\n{}", any_ ? "," : "", json_line(event_json(unit, interval, index, event)));
    } else {
      fmt::print("{:>3} {:>8} {:>3}  {}{}\n", unit, index, event.thread, printable(event_text(event)),
                 event_notes(event));
    }
    any_ = true;
  }

  const Trace& trace_;
  const bool json_;
  bool any_ = false;
};

// Interprets a single word: a number, or a name that no trace has, is a UNIT.
Result<DumpOptions> resolved(const DumpOptions& options) {
  if (!options.trace_or_unit) return options;
  DumpOptions out = options;
  const std::string& word = *options.trace_or_unit;
  const auto directory = parse_number(word) ? Result<std::string>(Error{}) : find_trace(word);
  std::error_code ignored;
  if (word.find('/') != std::string::npos || (directory && std::filesystem::is_directory(directory.value(), ignored))) {
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

Result<int> dump(const DumpOptions& given) {
  ASSIGN_OR_RETURN(const DumpOptions options, resolved(given));
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  ASSIGN_OR_RETURN(const std::shared_ptr<Trace> trace, Trace::open(directory));
  ASSIGN_OR_RETURN(const std::vector<Selection> wanted, selections(*trace, options.what));
  Dumper dumper(*trace, options.json);
  dumper.begin();
  for (const auto& selection : wanted) TRY(dumper.dump(selection));
  dumper.end();
  return 0;
}

constexpr CommandText kText{
    "dump", "redrive dump [--json] [TRACE] [UNIT[:I[-J]]]", "print the recorded events",
    "A single word is a TRACE if a trace with that name exists, and otherwise a UNIT of the latest trace.\n",
    kTraceAndUnitWords};

class DumpCommand : public CommandWith<DumpOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
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

std::unique_ptr<Command> make_dump_command() { return std::make_unique<DumpCommand>(kText); }

}  // namespace redrive
