// What the command line asks for, one struct and one function per command. Nothing here parses arguments
// (command_line.h).
//
// A command writes its result to standard output, progress and warnings to standard error, and returns the exit status
// or the one error that main prints. Names of traces and units are as the user wrote them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "logstore/policy/policy.h"
#include "supervisor/cli/unit_spec.h"
#include "supervisor/plan/execution.h"
#include "supervisor/plan/tuning.h"
#include "supervisor/record/transport.h"

namespace redrive {

class Trace;

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
// Records the command and everything it starts. Returns the program's exit status. The caller is what stand_in_front()
// has made the recorder.
Result<int> record(const RecordOptions& options);

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
// Re-drives intervals. Returns 0, Status::divergence if any diverged or failed verification, or kLate.
Result<int> replay(const ReplayOptions& options);
// On standard error, if the recording of the trace goes on.
void say_if_recorded_on(const Trace& trace);
// With `breaks`: all units stand there, are shown, and go on if it is to be verified or they are told to.
Result<int> replay_to_breakpoint(const ReplayOptions& options);

struct PrepareOptions {
  std::string trace;
  std::optional<double> bound_s;  // that of the trace if absent, or 10 s if it has none
  TuningRule tuning = TuningRule::promise;
  std::string policy;                // that of the trace if empty, or critical-path if it was recorded with none
  PolicyParameters parameters;       // all but C and T
  std::vector<std::string> isolate;  // units whose messages from others are all kept
  bool in_process = true;
  int jobs = 1;
  bool json = false;
  bool progress = false;  // standard error is a terminal
};
// Re-drives what is needed to make real checkpoints of virtual ones, and keeps the messages that the policy wants.
// Whoever ends it leaves a good trace, and the next one goes on there.
Result<int> prepare(const PrepareOptions& options);

// Whether, and why not, this host can record.
Result<void> check_host(bool json);

// The traces below trace_home(), newest first, or the units and intervals of one.
struct ListOptions {
  std::optional<std::string> trace;  // or a pattern of names, as glob(7) has them, if no trace is called so
  bool failed = false;               // only those whose program ended with another status than 0
  std::optional<std::chrono::system_clock::time_point> since;  // only those begun then or later
  std::optional<uint64_t> most;                                // no more than so many
  bool json = false;
  bool filters() const { return failed || since || most; }
};
Result<int> list_command(const ListOptions& options);

struct PlanOptions {
  std::string trace;
  UnitSpec what;  // a single interval; of no meaning with `breaks`
  int jobs = 1;
  std::optional<uint64_t> until;  // as in ReplayOptions
  std::vector<PlaceSpec> breaks;  // plan a distributed breakpoint instead
  bool json = false;
};
Result<int> plan_command(const PlanOptions& options);

// Lists are swept: a row for each combination. Empty: as recorded.
struct EvaluateOptions {
  std::string trace;
  std::optional<SyntheticOptions> synthetic;  // instead of a trace
  std::vector<std::string> policies;          // empty: all
  std::vector<double> critical_path_s, checkpoint_period_s, skew_s;
  std::vector<uint32_t> set_bound, multiplicity, cores;
  bool approximate = false;
  bool measure = false;  // re-drive every interval of the trace
  int jobs = 1;          // cores, if none are given and none were recorded
  uint64_t seed = 1;
  bool json = false;
  bool csv = false;
};
Result<int> evaluate_command(const EvaluateOptions& options);

struct DumpOptions {
  std::string trace;
  std::optional<UnitSpec> what;  // absent: every unit
  // The one positional given, which names a trace if there is such a trace and a unit of the latest trace otherwise.
  std::optional<std::string> trace_or_unit;
  bool json = false;
};
Result<int> dump_command(const DumpOptions& options);

struct StatsOptions {
  std::string trace;
  bool json = false;
};
Result<int> stats_command(const StatsOptions& options);

// Verifies every byte of a trace. Returns Status::damaged if anything is wrong.
struct CheckOptions {
  std::string trace;
  bool json = false;
};
Result<int> check_command(const CheckOptions& options);

struct RemoveOptions {
  std::vector<std::string> traces;
};
Result<int> remove_command(const RemoveOptions& options);

}  // namespace redrive
