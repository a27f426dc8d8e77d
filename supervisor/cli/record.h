// redrive record: runs a command, or attaches to a process, and records it with everything it starts.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "logstore/policy/policy.h"
#include "supervisor/cli/command.h"
#include "supervisor/plan/tuning.h"
#include "supervisor/record/settings/checkpoint_engine.h"
#include "supervisor/record/settings/transport.h"
#include "supervisor/record/settings/triggers.h"

namespace redrive {

struct RecordOptions {
  std::string directory;  // of the trace to make; empty: a new one below trace_home()
  std::vector<std::string> command;
  std::string policy{kDefaultPolicy};
  double bound_s = 10;
  TuningRule tuning = TuningRule::promise;
  std::optional<double> critical_path_s;      // C; nullopt: derived from the bound
  std::optional<double> checkpoint_period_s;  // T; nullopt: C/2
  PolicyParameters parameters;                // all except C and T
  bool in_process = true;                     // serve calls inside the program where possible
  bool independent_checkpoints = false;       // units do not take theirs together
  unsigned processors = 0;                    // on which the programs may run; 0: all
  unsigned processors_seen = 0;               // that the programs see; 0: those that exist
  CheckpointEngine::Kind checkpoint_engine = CheckpointEngine::Kind::automatic;
  bool virtual_checkpoints = false;  // the first of four phases: `prepare` does the rest
  bool promises_bound = true;
  Transport transport = Transport::sockets;  // for runtimes that otherwise share memory
  bool no_repair = false;                    // of what keeps replays from the bound
  bool require_bound = false;                // fail if one does not
  bool self_check = false;                   // re-drive the trace while it is recorded
  bool wait = false;                         // also for processes that the program leaves behind
  double keep_s = 0;                         // only the last part of the recording; 0: all
  uint64_t keep_bytes = 0;                   // the same, by its size
  std::vector<Trigger> triggers;             // what a snapshot is taken for
  uint64_t snapshots = 5;                    // at most, for triggers
  std::string session;                       // as which others can find and control the recording; empty: they cannot
  bool keeps_window() const { return keep_s > 0 || keep_bytes > 0; }
  std::string output;         // file for what the program and the recorder write; empty: where redrive does
  pid_t pid = 0;              // the process to attach to; 0: the command is run
  double attached_for_s = 0;  // after which it runs on by itself; 0: there is no limit
};
// Running it returns the program's exit status; 0 if the process that was attached to runs on.
std::unique_ptr<Command> make_record_command();

}  // namespace redrive
