// redrive replay --break: all units stand at a distributed breakpoint, are shown, and continue.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/notice.h"
#include "base/text.h"
#include "checkpoint/restore.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/event_text.h"
#include "supervisor/cli/replay.h"
#include "supervisor/plan/recovery_line.h"
#include "supervisor/replay/inspection.h"
#include "supervisor/replay/joint_replay.h"
#include "supervisor/replay/replay_set.h"

namespace redrive {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// The next event of a unit, as text; empty at the unit's end.
Result<std::string> next_event_text(const Trace& trace, EventRef at, IntervalIndex interval) {
  std::string text;
  TRY(trace.for_each_event(at.unit, at.event, at.event + 1, [&](EventIndex index, const Event& event) {
    const Ended ended = what_ended(trace, at.unit, interval, index, event);
    text = printable(event_text(event)) + event_notes(event, ended);
    return true;
  }));
  return text;
}

class Session {
 public:
  Session(const ReplayOptions& options, std::shared_ptr<Trace> trace, DependenceGraph graph)
      : options_(options), trace_(std::move(trace)), graph_(std::move(graph)) {}

  Result<int> run(Clock::time_point started);

 private:
  // The state of a unit at the breakpoint, as it is shown to people or programs.
  struct View {
    UnitId unit = 0;
    std::string state;  // "standing", "ended", "not started"
    EventIndex event = 0;
    std::string next;  // what it is about to do
    std::optional<IntervalIndex> interval;
    Json threads = Json::array();
    std::string text;  // registers and stack of the thread that makes the next event
  };
  // The result of an interval that has come to its end.
  struct End {
    PlanRequest standing;
    bool verified = false;
    std::string unverified;  // as in a Replayer's Outcome
    std::optional<std::string> error;
    bool diverged = false;
  };
  struct Name {
    UnitId unit = 0;
    std::optional<ThreadSerial> thread;
  };

  Result<void> prepare();
  Result<View> view(UnitId unit);
  void show_threads(size_t index, View& view);
  Result<std::vector<View>> views();
  Result<Bytes> memory(const MemorySpec& spec);
  std::optional<size_t> standing(UnitId unit) const;

  Result<void> print_place(Clock::time_point started);
  Result<Json> place_json(Clock::time_point started);
  std::vector<End> ends() const;
  Json ends_json() const;
  void print_ends() const;
  Result<void> failure() const;
  int status() const;

  void inspect();
  Result<void> obey(const std::vector<std::string>& words);
  Result<Name> named(const std::string& text) const;
  Result<void> print_units();
  Result<void> look(UnitId unit, const std::function<Result<void>(const StoppedUnit&)>& what);
  Result<void> look_at_thread(const std::string& text, const std::function<void(const StoppedUnit::Thread&)>& show);
  Result<void> go(const std::vector<std::string>& places);
  Result<void> go_on();

  const ReplayOptions& options_;
  const std::shared_ptr<Trace> trace_;
  DependenceGraph graph_;
  Communication communication_;
  Breakpoint breakpoint_;
  RecoveryLine line_;
  Plan whole_;
  std::vector<int> processors_;
  std::unique_ptr<ReplayTier> tier_;
  std::unique_ptr<RestoreEngine> engine_;
  std::unique_ptr<JointReplay> replay_;
  bool over_ = false;    // nothing is left to inspect
  bool failed_ = false;  // a command of a script
};

Result<void> Session::prepare() {
  for (const MemorySpec& spec : options_.memory) TRY(trace_->find_unit(spec.unit));
  ASSIGN_OR_RETURN(const auto wanted, find_events(*trace_, options_.breaks));
  ASSIGN_OR_RETURN(communication_, read_communication(*trace_));
  ASSIGN_OR_RETURN(breakpoint_, causal_breakpoint(communication_, wanted));
  ASSIGN_OR_RETURN(line_, recovery_line(communication_, graph_, breakpoint_));
  whole_ = line_.plan;
  if (options_.inspect || options_.verify) {
    ASSIGN_OR_RETURN(whole_, plan_to_ends(line_, graph_));
  }
  trap_own_instructions();
  processors_ = usable_processors(options_.jobs);
  if (options_.in_process) tier_ = make_tier();
  ASSIGN_OR_RETURN(engine_, engine_of(options_));
  const SetRun run{*trace_, graph_, processors_, tier_.get(), options_.total_order, engine_.get()};
  ASSIGN_OR_RETURN(replay_, JointReplay::make(run, whole_, line_.standing.size(), options_.verify));
  return {};
}

Result<int> Session::run(Clock::time_point started) {
  TRY(prepare());
  ASSIGN_OR_RETURN(const auto came, replay_->go_to(line_.plan));
  if (came == JointReplay::Came::all_ended) {
    TRY(failure());
    return status();
  }
  Json out;
  if (options_.json) {
    ASSIGN_OR_RETURN(out, place_json(started));
  } else {
    TRY(print_place(started));
  }
  if (options_.inspect) {
    inspect();
  } else if (options_.verify) {
    TRY(go_on());
  }
  TRY(failure());
  if (options_.json) {
    out["intervals"] = ends_json();
    if (options_.total_order) out["arrivals"] = replay_->arrivals();
    print_json(out);
  }
  return status();
}

std::optional<size_t> Session::standing(UnitId unit) const {
  const auto found = std::find_if(line_.standing.begin(), line_.standing.end(),
                                  [&](const PlanRequest& request) { return request.unit == unit; });
  if (found == line_.standing.end()) return std::nullopt;
  return static_cast<size_t>(found - line_.standing.begin());
}

void Session::show_threads(size_t index, View& view) {
  const bool stands = replay_->look(index, [&](const StoppedUnit& unit) {
    for (const auto& [serial, thread] : unit.threads) {
      const std::string stack = stack_of(thread.tid, trace_->files());
      std::istringstream lines(stack);
      Json frames = Json::array();
      for (std::string line; std::getline(lines, line);) frames.push_back(line);
      view.threads.push_back({{"thread", serial},
                              {"process", thread.process},
                              {"next", unit.thread == serial},
                              {"in_call", thread.in_call},
                              {"registers", registers_json(thread.regs)},
                              {"stack", frames}});
      if (unit.thread == serial) view.text = describe_registers(thread.regs) + "\n" + stack;
    }
  });
  if (!stands) view.state = "ended";
}

Result<Session::View> Session::view(UnitId unit) {
  const Breakpoint::Place& place = breakpoint_.units.at(unit);
  View view;
  view.unit = unit;
  view.event = place.event;
  const auto index = standing(unit);
  view.state = index ? "standing" : place.started ? "ended" : "not started";
  if (!index) return view;
  view.interval = line_.standing[*index].interval;
  show_threads(*index, view);
  if (view.state == "standing") {
    ASSIGN_OR_RETURN(view.next, next_event_text(*trace_, {unit, place.event}, *view.interval));
  }
  return view;
}

Result<std::vector<Session::View>> Session::views() {
  std::vector<View> all;
  for (const auto& [unit, place] : breakpoint_.units) {
    ASSIGN_OR_RETURN(View one, view(unit));
    all.push_back(std::move(one));
  }
  return all;
}

Result<Bytes> Session::memory(const MemorySpec& spec) {
  ASSIGN_OR_RETURN(const UnitId unit, trace_->find_unit(spec.unit));
  Result<Bytes> bytes = Error{};
  TRY(look(unit, [&](const StoppedUnit& stopped) -> Result<void> {
    bytes = memory_of(stopped, spec.address, spec.length);
    return {};
  }));
  return bytes;
}

Result<void> Session::print_place(Clock::time_point started) {
  const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
  ASSIGN_OR_RETURN(const auto all, views());
  std::map<std::string, std::vector<UnitId>> elsewhere;  // by state
  for (const View& view : all) {
    if (view.state != "standing") {
      elsewhere[view.state].push_back(view.unit);
      continue;
    }
    fmt::print("unit {} ({}): before event {}, in interval {}: {}\n", view.unit,
               printable(trace_->unit_name(view.unit)), view.event, *view.interval, printable(view.next));
    std::istringstream lines(view.text);
    for (std::string line; std::getline(lines, line);) fmt::print("  {}\n", printable(line));
    if (view.threads.size() > 1) fmt::print("  and {} more\n", counted(view.threads.size() - 1, "thread"));
  }
  for (const auto& [state, units] : elsewhere) fmt::print("{}: {}\n", state, fmt::join(units, ", "));
  for (const MemorySpec& spec : options_.memory) {
    ASSIGN_OR_RETURN(const Bytes bytes, memory(spec));
    fmt::print("memory of unit {}:\n{}", printable(spec.unit), hex_dump(spec.address, bytes));
  }
  const Settings& settings = trace_->settings();
  const std::string bound = settings.keeps_bound() ? fmt::format(", bound {:g} s", settings.bound_s) : std::string();
  fmt::print("{} at the breakpoint after {:.3f} s{}\n", counted(line_.standing.size(), "unit"), seconds, bound);
  return {};
}

Result<Json> Session::place_json(Clock::time_point started) {
  const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
  ASSIGN_OR_RETURN(const auto all, views());
  Json units = Json::array();
  for (const View& view : all) {
    units.push_back({{"unit", view.unit},
                     {"name", trace_->unit_name(view.unit)},
                     {"state", view.state},
                     {"event", view.event},
                     {"interval", view.interval ? Json(*view.interval) : Json()},
                     {"next", view.next},
                     {"threads", view.threads}});
  }
  Json memories = Json::array();
  for (const MemorySpec& spec : options_.memory) {
    ASSIGN_OR_RETURN(const Bytes bytes, memory(spec));
    std::string hex;
    for (const uint8_t byte : bytes) hex += fmt::format("{:02x}", byte);
    ASSIGN_OR_RETURN(const UnitId unit, trace_->find_unit(spec.unit));
    memories.push_back({{"unit", unit}, {"address", spec.address}, {"length", spec.length}, {"hex", hex}});
  }
  return Json{{"units", units}, {"memory", memories}, {"seconds", seconds}, {"bound_s", trace_->settings().bound_s}};
}

std::vector<Session::End> Session::ends() const {
  std::vector<End> all;
  for (size_t i = 0; i < line_.standing.size(); ++i) {
    const auto& outcome = replay_->outcome(i);
    if (!outcome) continue;
    End end{line_.standing[i], false, {}, std::nullopt, false};
    if (!*outcome) {
      end.error = outcome->error().message;
    } else {
      end.verified = (*outcome)->verified;
      end.unverified = (*outcome)->unverified;
      end.diverged = (*outcome)->divergence.has_value();
    }
    all.push_back(std::move(end));
  }
  return all;
}

Json Session::ends_json() const {
  Json list = Json::array();
  for (const End& end : ends()) {
    list.push_back({{"unit", end.standing.unit},
                    {"name", trace_->unit_name(end.standing.unit)},
                    {"interval", end.standing.interval},
                    {"verified", end.verified},
                    {"unverified", end.unverified.empty() ? Json() : Json(end.unverified)},
                    {"diverged", end.diverged},
                    {"error", end.error ? Json(*end.error) : Json()}});
  }
  return list;
}

void Session::print_ends() const {
  Columns columns({">UNIT", "NAME", ">INTERVAL", "RESULT"});
  for (const End& end : ends()) {
    columns.add({fmt::format("{}", end.standing.unit), trace_->unit_name(end.standing.unit),
                 fmt::format("{}", end.standing.interval),
                 end.error                ? "not re-driven: " + *end.error
                 : end.diverged           ? "DIVERGED"
                 : end.verified           ? "ok, state equals the recorded one"
                 : end.unverified.empty() ? "ok, every event equal"
                                          : "ok, every event equal; not verified: " + end.unverified});
  }
  columns.print();
}

// The error of the first interval that failed, unless it failed because of one that diverged. A divergence is printed
// and is not an error.
Result<void> Session::failure() const {
  std::optional<Error> error;
  bool diverged = false;
  std::string breaks;
  for (const auto& place : options_.breaks)
    breaks += fmt::format(" --break {}@{}", shell_quoted(place.unit), place.event);
  for (size_t i = 0; i < whole_.replay_set.size(); ++i) {
    const auto& outcome = replay_->outcome(i);
    if (!outcome) continue;
    if (!*outcome) {
      if (!error) error = outcome->error();
    } else if (const auto& divergence = (*outcome)->divergence) {
      if (!std::exchange(diverged, true)) print_divergence(*trace_, *divergence, "--verify" + breaks);
    }
  }
  if (error && !diverged) return *error;
  return {};
}

int Session::status() const {
  for (size_t i = 0; i < whole_.replay_set.size(); ++i) {
    const auto& outcome = replay_->outcome(i);
    if (outcome && *outcome && (*outcome)->divergence) return static_cast<int>(Status::divergence);
  }
  return static_cast<int>(failed_ ? Status::failed : Status::ok);
}

void Session::inspect() {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  for (std::string line; !over_;) {
    if (terminal) fmt::print("(redrive) ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) return;
    std::istringstream text(line);
    const std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
    if (words.empty()) continue;
    const auto obeyed = obey(words);
    if (obeyed) continue;
    notice("{}", obeyed.error().message);
    failed_ |= !terminal;
  }
}

Result<void> Session::obey(const std::vector<std::string>& words) {
  const std::string& command = words[0];
  const size_t arguments = words.size() - 1;
  if (command == "units" && arguments == 0) return print_units();
  if (command == "regs" && arguments == 1) {
    return look_at_thread(words[1], [](const auto& thread) { fmt::print("{}\n", describe_registers(thread.regs)); });
  }
  if (command == "stack" && arguments == 1) {
    return look_at_thread(words[1], [this](const auto& thread) {
      fmt::print("{}", printable_lines(stack_of(thread.tid, trace_->files())));
    });
  }
  if (command == "x" && arguments == 3) {
    ASSIGN_OR_RETURN(const MemorySpec spec, parse_memory_spec(words[1], words[2], words[3]));
    ASSIGN_OR_RETURN(const Bytes bytes, memory(spec));
    fmt::print("{}", hex_dump(spec.address, bytes));
    return {};
  }
  if (command == "go" && arguments > 0) return go({words.begin() + 1, words.end()});
  if (command == "continue" && arguments == 0) return go_on();
  if (command == "quit" && arguments == 0) return over_ = true, Result<void>();
  return Error{
      "commands: units, regs UNIT[.THREAD], stack UNIT[.THREAD], x UNIT ADDRESS LENGTH, go UNIT@EVENT ..., "
      "continue, quit"};
}

Result<void> Session::look_at_thread(const std::string& text,
                                     const std::function<void(const StoppedUnit::Thread&)>& show) {
  ASSIGN_OR_RETURN(const Name name, named(text));
  return look(name.unit, [&](const StoppedUnit& unit) -> Result<void> {
    ASSIGN_OR_RETURN(const StoppedUnit::Thread thread, thread_of(unit, name.thread));
    show(thread);
    return {};
  });
}

// UNIT, or UNIT.THREAD if no unit has the whole name.
Result<Session::Name> Session::named(const std::string& text) const {
  auto unit = trace_->find_unit(text);
  if (unit) return Name{*unit, std::nullopt};
  const size_t dot = text.rfind('.');
  const auto thread = dot == std::string::npos ? std::nullopt : parse_number(std::string_view(text).substr(dot + 1));
  const auto before = thread ? trace_->find_unit(text.substr(0, dot)) : unit;
  if (!before) return unit.error();
  return Name{*before, static_cast<ThreadSerial>(*thread)};
}

Result<void> Session::print_units() {
  ASSIGN_OR_RETURN(const auto all, views());
  Columns columns({">UNIT", "NAME", "STATE", ">EVENT", ">THREADS", "NEXT"});
  for (const View& view : all) {
    const bool stands = view.state == "standing";
    columns.add({fmt::format("{}", view.unit), trace_->unit_name(view.unit), view.state,
                 stands ? fmt::format("{}", view.event) : "-", stands ? fmt::format("{}", view.threads.size()) : "-",
                 view.next});
  }
  columns.print();
  return {};
}

Result<void> Session::look(UnitId unit, const std::function<Result<void>(const StoppedUnit&)>& what) {
  const auto index = standing(unit);
  Result<void> result;
  const bool stands = index && replay_->look(*index, [&](const StoppedUnit& stopped) { result = what(stopped); });
  if (!stands)
    return Error{fmt::format("unit {} does not stand at the breakpoint: it has ended or was not started", unit)};
  return result;
}

Result<void> Session::go(const std::vector<std::string>& places) {
  std::vector<PlaceSpec> specs;
  for (const std::string& text : places) {
    ASSIGN_OR_RETURN(const PlaceSpec place, parse_place_spec(text));
    specs.push_back(place);
  }
  ASSIGN_OR_RETURN(const auto wanted, find_events(*trace_, specs));
  ASSIGN_OR_RETURN(Breakpoint later, later_breakpoint(communication_, breakpoint_, wanted));
  ASSIGN_OR_RETURN(const Plan plan, plan_to(line_, communication_, graph_, breakpoint_, later));
  ASSIGN_OR_RETURN(const auto came, replay_->go_to(plan));
  over_ = came == JointReplay::Came::all_ended;
  if (over_) return {};
  breakpoint_ = std::move(later);
  return print_units();
}

Result<void> Session::go_on() {
  TRY(replay_->go_on());
  over_ = true;
  if (!options_.json) print_ends();
  return {};
}

}  // namespace

Result<int> replay_to_breakpoint(const ReplayOptions& options) {
  const auto started = Clock::now();
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  ASSIGN_OR_RETURN(const std::shared_ptr<Trace> trace, Trace::open(directory));
  say_if_recorded_on(*trace);
  ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(*trace));
  return Session(options, trace, std::move(graph)).run(started);
}

}  // namespace redrive
