// redrive replay: re-drives intervals, or all units up to a distributed breakpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/cli/command.h"
#include "supervisor/cli/unit_spec.h"

namespace redrive {

class Trace;

// Exit status of `replay`: all was re-driven, and some interval took longer than the bound.
inline constexpr Status kLate{5};

struct ReplayOptions {
  std::string trace;
  std::string unit_text;                                  // empty only if `all`
  std::optional<uint32_t> first_interval, last_interval;  // both or neither; neither: every interval of the unit
  bool all = false;
  bool once = false;  // with `all`: every interval is executed once, together with the others
  bool verify = false;
  bool output = false;
  bool in_process = true;  // answer calls inside the re-driven processes where that can be done
  int jobs = 1;
  std::optional<uint64_t> until;   // the event to stop before; only with a single interval
  bool total_order = false;        // all receives of a replay set happen in the recorded order
  std::vector<PlaceSpec> breaks;   // a distributed breakpoint instead of a unit; what follows only with it
  std::vector<MemorySpec> memory;  // to be shown there
  bool inspect = false;            // read commands from standard input there
  bool json = false;
  bool progress = false;  // standard error is a terminal
};

// On standard error, if the recording of the trace goes on.
void say_if_recorded_on(const Trace& trace);
// With `breaks`: all units stand there, are shown, and go on if it is to be verified or they are told to.
Result<int> replay_to_breakpoint(const ReplayOptions& options);

// Running it returns 0, Status::divergence if any diverged or failed verification, or kLate.
std::unique_ptr<Command> make_replay_command();

}  // namespace redrive
