#include "supervisor/cli/checkpoint_export.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "base/units.h"
#include "interceptors/trapped_instructions.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/core_export.h"
#include "supervisor/cli/replay.h"
#include "supervisor/plan/recovery_line.h"
#include "supervisor/replay/joint_replay.h"
#include "supervisor/replay/replay_set.h"

namespace redrive {
namespace {

using Json = nlohmann::ordered_json;

// What is executed until the units stand where they are to be exported: those come first in the plan.
struct Way {
  Plan plan;
  size_t shown = 0;
  std::string breaks;  // as options of replay, with which the same can be seen
};

class Export {
 public:
  Export(const CheckpointOptions& options, const Trace& trace, CoreExport& cores)
      : options_(options), trace_(trace), cores_(cores) {}

  Result<int> run() {
    if (!options_.interval) return replay();
    ASSIGN_OR_RETURN(const Selection selected, select(trace_, *options_.interval));
    const IntervalRecord& interval = trace_.intervals(selected.unit).at(selected.first);
    if (interval.has_image) return from_image(interval);
    return replay();
  }

 private:
  Result<int> from_image(const IntervalRecord& interval) {
    ASSIGN_OR_RETURN(const Image image, trace_.image(interval.unit, interval.interval));
    ASSIGN_OR_RETURN(const UnitState state, read_state(image.header, interval.unit, interval.interval));
    TRY(cores_.add(
        {interval.unit, interval.interval, interval.first_event, {}}, state,
        [&](const ProcessState& process) { return memory_in_image(trace_, cores_.copies(), state, image, process); }));
    return 0;
  }

  Result<Way> way_to_breakpoint(DependenceGraph& graph, const std::vector<PlaceSpec>& places) const {
    ASSIGN_OR_RETURN(const auto wanted, find_events(trace_, places));
    ASSIGN_OR_RETURN(const Communication communication, read_communication(trace_));
    ASSIGN_OR_RETURN(const Breakpoint breakpoint, causal_breakpoint(communication, wanted));
    ASSIGN_OR_RETURN(RecoveryLine line, recovery_line(communication, graph, breakpoint));
    Way way{std::move(line.plan), line.standing.size(), {}};
    for (const EventRef& event : wanted) way.breaks += fmt::format(" --break {}@{}", event.unit, event.event);
    return way;
  }

  // One unit alone does not need to wait for the places of others.
  Result<Way> way_to(DependenceGraph& graph, EventRef event) const {
    const EventIndex events = trace_.event_count(event.unit);
    if (event.event >= events) {
      return Error{fmt::format("unit {} has no event {}: it has {}", event.unit, event.event,
                               events == 0 ? "none" : fmt::format("0 to {}", events - 1))};
    }
    ASSIGN_OR_RETURN(RecoveryLine line, line_to(graph, event));
    return Way{std::move(line.plan), 1, fmt::format(" --break {}@{}", event.unit, event.event)};
  }

  Result<Way> find_way(DependenceGraph& graph) const {
    if (!options_.breaks.empty()) return way_to_breakpoint(graph, options_.breaks);
    if (options_.place) {
      ASSIGN_OR_RETURN(const auto wanted, find_events(trace_, {*options_.place}));
      return way_to(graph, wanted.front());
    }
    ASSIGN_OR_RETURN(const Selection selected, select(trace_, *options_.interval));
    return way_to(graph, {selected.unit, trace_.intervals(selected.unit).at(selected.first).first_event});
  }

  Result<int> replay() {
    ASSIGN_OR_RETURN(DependenceGraph graph, DependenceGraph::open(trace_));
    ASSIGN_OR_RETURN(const Way way, find_way(graph));
    trap_own_instructions();
    const std::vector<int> processors = usable_processors(options_.jobs);
    const auto tier = options_.in_process ? make_tier() : nullptr;
    ASSIGN_OR_RETURN(const auto replay,
                     JointReplay::make({trace_, graph, processors, tier.get()}, way.plan, way.shown, false));
    ASSIGN_OR_RETURN(const auto came, replay->go_to(way.plan));
    if (came == JointReplay::Came::all_ended) return failure(*replay, way);
    for (size_t i = 0; i < way.shown; ++i) {
      Result<void> added;
      replay->look(i, [&](const StoppedUnit& unit) { added = add(way.plan.replay_set[i], unit); });
      if (!added) return added.error();
    }
    return 0;
  }

  // Called where the unit stands.
  Result<void> add(const PlannedInterval& planned, const StoppedUnit& unit) {
    ASSIGN_OR_RETURN(const UnitState state, unit.state());
    return cores_.add({unit.unit, planned.interval, unit.event, unit.fault}, state,
                      [&](const ProcessState& process) -> Result<std::unique_ptr<RecordedMemory>> {
                        return memory_of_stopped(*unit.memories.at(process.process), process);
                      });
  }

  // Why nothing stands there. A divergence is printed and is not an error.
  Result<int> failure(const JointReplay& replay, const Way& way) const {
    std::optional<Error> error;
    for (size_t i = 0; i < way.plan.replay_set.size(); ++i) {
      const auto& outcome = replay.outcome(i);
      if (outcome && *outcome && (*outcome)->divergence) {
        print_divergence(trace_, *(*outcome)->divergence, "--verify" + way.breaks);
        return static_cast<int>(Status::divergence);
      }
      if (outcome && !*outcome && !error) error = outcome->error();
    }
    return error.value_or(Error{"no unit stands there"});
  }

  const CheckpointOptions& options_;
  const Trace& trace_;
  CoreExport& cores_;
};

std::string debugger_command(const CoreExport::Core& core) {
  std::string command = "gdb -iex " + shell_quoted("set sysroot " + core.root);
  if (!core.program.empty()) command += " " + shell_quoted(core.program);
  return command + " " + shell_quoted(core.file);
}

void show(const Trace& trace, const CoreExport& cores) {
  Columns columns({">UNIT", "NAME", ">PID", ">BEFORE EVENT", ">THREADS", ">SIZE", "FILE"});
  for (const auto& core : cores.cores()) {
    columns.add({fmt::format("{}", core.place.unit), trace.unit_name(core.place.unit), fmt::format("{}", core.pid),
                 fmt::format("{}", core.place.event), fmt::format("{}", core.threads), format_size(core.bytes),
                 core.file});
  }
  columns.print();
  fmt::print("the files that they had mapped: {}\nto look at the first: {}\n", format_size(cores.root_bytes()),
             printable(debugger_command(cores.cores().front())));
}

Json to_json(const Trace& trace, const CoreExport& cores) {
  Json list = Json::array();
  for (const auto& core : cores.cores()) {
    list.push_back({{"unit", core.place.unit},
                    {"name", trace.unit_name(core.place.unit)},
                    {"pid", core.pid},
                    {"interval", core.place.interval},
                    {"event", core.place.event},
                    {"threads", core.threads},
                    {"bytes", core.bytes},
                    {"file", core.file},
                    {"root", core.root},
                    {"program", core.program.empty() ? Json() : Json(core.program)}});
  }
  return {{"cores", list}, {"root_bytes", cores.root_bytes()}};
}

}  // namespace

Result<int> export_checkpoint(const CheckpointOptions& options) {
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  ASSIGN_OR_RETURN(const std::shared_ptr<Trace> trace, Trace::open(directory));
  say_if_recorded_on(*trace);
  ASSIGN_OR_RETURN(const auto cores, CoreExport::begin(*trace, options.directory, options.file_pages));
  ASSIGN_OR_RETURN(const int status, Export(options, *trace, *cores).run());
  if (status != 0) return status;
  if (cores->cores().empty()) return Error{"the unit has no process there"};
  TRY(cores->finish());
  if (options.json) {
    print_json(to_json(*trace, *cores));
  } else {
    show(*trace, *cores);
  }
  return 0;
}

}  // namespace redrive
