// redrive replay: re-drives intervals, or all units up to a distributed breakpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "logstore/event.h"
#include "supervisor/cli/command.h"
#include "supervisor/cli/unit_spec.h"

namespace redrive {

class RestoreEngine;
class Trace;

// Exit status of `replay`: everything was re-driven, but some interval took longer than the bound.
inline constexpr Status kLate{5};

struct ReplayOptions {
  std::string trace;
  std::string unit_text;                                  // empty only if `all` or `at`
  std::optional<uint32_t> first_interval, last_interval;  // both or neither; neither: all intervals of the unit
  std::optional<std::string> at;  // the intervals that ran at this moment (time_of_day.h), of the unit or of all
  bool utc = false;
  bool all = false;
  bool once = false;  // with `all`: execute every interval once, together with the others
  bool verify = false;
  bool follow = false;  // with `all`: while the trace is being recorded as well; then also `once` and `verify`
  bool output = false;
  bool in_process = true;  // answer calls inside the re-driven processes where possible
  bool by_criu = false;    // restore images by CRIU
  int jobs = 1;
  std::optional<uint64_t> until;   // the event to stop before; only with a single interval
  bool total_order = false;        // all receives of a replay set happen in the recorded order
  std::vector<PlaceSpec> breaks;   // a distributed breakpoint instead of a unit; the next two need this
  std::vector<MemorySpec> memory;  // to be shown at the breakpoint
  bool inspect = false;            // read commands from standard input at the breakpoint
  bool json = false;
  bool progress = false;  // standard error is a terminal
};

// What restores images by CRIU, if that is asked for; null: restore() does it itself.
Result<std::unique_ptr<RestoreEngine>> engine_of(const ReplayOptions& options);
// Says on standard error if the trace is still being recorded.
void say_if_recorded_on(const Trace& trace);
// Re-drives intervals of a trace, each alone, as their ends are recorded, and compares; returns when the recording has
// ended. What diverges is shown at once; later intervals of a unit that has diverged are left out.
struct Followed {
  uint64_t intervals = 0;
  std::set<EventRef> diverged;  // at these events
};
Result<Followed> follow_recording(const std::string& directory, const ReplayOptions& options, RestoreEngine* engine);
// With `breaks`: all units stand at the breakpoint and are shown. They continue if they are to be verified or a command
// says so.
Result<int> replay_to_breakpoint(const ReplayOptions& options);

// Running it returns 0, Status::divergence if any diverged or failed verification, or kLate.
std::unique_ptr<Command> make_replay_command();

}  // namespace redrive
