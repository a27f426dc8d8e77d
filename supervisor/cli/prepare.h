// redrive prepare: re-drives what is needed to make real checkpoints of virtual ones, and keeps the messages that the
// policy wants. Whoever ends it leaves a good trace, and the next one goes on there.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "logstore/policy/policy.h"
#include "supervisor/cli/command.h"
#include "supervisor/plan/tuning.h"

namespace redrive {

struct PrepareOptions {
  std::string trace;
  std::optional<double> bound_s;  // that of the trace if absent, or 10 s if it has none
  TuningRule tuning = TuningRule::promise;
  std::string policy;                // that of the trace if empty, or fewest-bytes if it was recorded with none
  PolicyParameters parameters;       // all but C and T
  std::vector<std::string> isolate;  // units whose messages from others are all kept
  bool in_process = true;
  int jobs = 1;
  bool json = false;
  bool progress = false;  // standard error is a terminal
};

std::unique_ptr<Command> make_prepare_command();

}  // namespace redrive
