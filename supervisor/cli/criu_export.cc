#include "supervisor/cli/criu_export.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/notice.h"
#include "base/text.h"
#include "checkpoint/criu.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/replay.h"
#include "supervisor/live/image_directory.h"
#include "supervisor/live/revival.h"

namespace redrive {
namespace {

using Json = nlohmann::ordered_json;

Result<std::vector<EventRef>> wanted_places(const CheckpointOptions& options, const Trace& trace) {
  if (options.place) return find_events(trace, {*options.place});
  if (!options.interval) return find_events(trace, options.breaks);
  ASSIGN_OR_RETURN(const Selection selected, select(trace, *options.interval));
  return std::vector<EventRef>{{selected.unit, trace.intervals(selected.unit).at(selected.first).first_event}};
}

void show(const Trace& trace, const Revival& revival, const ImageDirectory& images) {
  Columns columns({">UNIT", "NAME", ">PID", ">BEFORE EVENT"});
  for (const auto& process : revival.processes()) {
    columns.add({fmt::format("{}", process.unit), trace.unit_name(process.unit), fmt::format("{}", process.pid),
                 fmt::format("{}", process.event)});
  }
  columns.print();
  fmt::print("to let them run on: {}\n", printable(shell_quoted(images.script())));
}

Json to_json(const Trace& trace, const Revival& revival, const ImageDirectory& images) {
  Json list = Json::array();
  for (const auto& process : revival.processes()) {
    list.push_back({{"unit", process.unit},
                    {"name", trace.unit_name(process.unit)},
                    {"pid", process.pid},
                    {"event", process.event}});
  }
  return {{"processes", list}, {"images", images.path()}, {"restore", images.script()}};
}

}  // namespace

Result<int> export_images(const CheckpointOptions& options) {
  ASSIGN_OR_RETURN(const std::string directory, find_trace(options.trace));
  ASSIGN_OR_RETURN(const std::shared_ptr<Trace> trace, Trace::open(directory));
  say_if_recorded_on(*trace);
  RevivalOptions how;
  ASSIGN_OR_RETURN(how.events, wanted_places(options, *trace));
  ASSIGN_OR_RETURN(const Criu criu, Criu::find("images for CRIU"));
  ASSIGN_OR_RETURN(const auto images, ImageDirectory::begin(options.directory));
  how.in_process = options.in_process;
  how.jobs = options.jobs;
  how.images = images.get();
  if (options.breaks.empty() && !options.live) how.only = how.events.front().unit;
  ASSIGN_OR_RETURN(Revival revival, Revival::make(*trace, how));
  for (const std::string& note : revival.notes()) notice("{}", note);
  TRY(revival.dump(criu));
  TRY(images->finish());
  if (options.json) {
    print_json(to_json(*trace, revival, *images));
  } else {
    show(*trace, revival, *images);
  }
  return 0;
}

}  // namespace redrive
