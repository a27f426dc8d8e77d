// redrive record: runs a command and records it with everything it starts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "logstore/policy/policy.h"
#include "supervisor/cli/command.h"
#include "supervisor/plan/tuning.h"
#include "supervisor/record/transport.h"

namespace redrive {

struct RecordOptions {
  std::string directory;  // of the trace to make; empty: a new one below trace_home()
  std::vector<std::string> command;
  std::string policy{kDefaultPolicy};
  double bound_s = 10;
  TuningRule tuning = TuningRule::promise;
  std::optional<double> critical_path_s;      // C; derived from the bound if absent
  std::optional<double> checkpoint_period_s;  // T; C/2 if absent
  PolicyParameters parameters;                // all but C and T
  bool in_process = true;                     // serve calls inside the program where that can be done
  unsigned processors = 0;                    // that the programs may run on; 0: all
  unsigned processors_seen = 0;               // that they find; 0: those that there are
  bool virtual_checkpoints = false;           // the first of four phases: `prepare` does the rest
  Transport transport = Transport::sockets;   // of runtimes that share memory otherwise
  bool wait = false;                          // for what the program leaves behind, too
};
// Running it returns the program's exit status.
std::unique_ptr<Command> make_record_command();

}  // namespace redrive
