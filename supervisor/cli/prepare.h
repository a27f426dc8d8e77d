// redrive prepare: re-drives what is needed to turn virtual checkpoints into real ones, and keeps the messages that the
// policy wants. If it is killed, it leaves an intact trace, and the next prepare continues there.
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
  std::optional<double> bound_s;  // nullopt: the trace's, or 10 s if it has none
  TuningRule tuning = TuningRule::promise;
  std::string policy;                // empty: the trace's, or the default if it was recorded without one
  PolicyParameters parameters;       // all except C and T
  std::vector<std::string> isolate;  // units for which all messages from other units are kept
  bool no_repair = false;            // of what keeps replays from the bound
  bool require_bound = false;        // fail if one does not keep it
  bool in_process = true;
  int jobs = 1;
  bool json = false;
  bool progress = false;  // standard error is a terminal
};

std::unique_ptr<Command> make_prepare_command();

}  // namespace redrive
