// redrive checkpoint: has all units of a session take a checkpoint now; or writes states of a recording's processes
// into files that other programs read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervisor/cli/command.h"
#include "supervisor/cli/unit_spec.h"

namespace redrive {

struct CheckpointOptions {
  enum class Format : uint8_t { core, criu };
  std::string session;    // if nothing is to be exported
  std::string directory;  // where to; empty: nothing is
  std::string trace;
  // The state of one unit where an interval begins or right before an event, or those of all units at a distributed
  // breakpoint: one of these three.
  std::optional<UnitSpec> interval;
  std::optional<PlaceSpec> place;
  std::vector<PlaceSpec> breaks;
  Format format = Format::core;
  bool live = false;        // images for CRIU of all units, wherever one is to stand
  bool file_pages = false;  // cores have what mapped files hold
  bool in_process = true;   // as in ReplayOptions
  int jobs = 1;
  bool json = false;
};

std::unique_ptr<Command> make_checkpoint_command();

}  // namespace redrive
