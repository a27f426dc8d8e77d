// redrive snapshot: makes a trace of the window of a recording, which goes on (record --keep).
#include "supervisor/cli/snapshot.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/notice.h"
#include "base/parallel.h"
#include "base/text.h"
#include "logstore/trace.h"
#include "logstore/trace_files.h"
#include "logstore/trace_snapshot.h"
#include "supervisor/cli/bound_keeping.h"
#include "supervisor/cli/session_text.h"
#include "supervisor/cli/shared_options.h"
#include "supervisor/cli/words.h"

namespace redrive {
namespace {

// Has the recorder complete what it has recorded, and returns where that is.
Result<std::string> complete(const SessionName& session) {
  const SessionClient client(session);
  ASSIGN_OR_RETURN(const SessionStatus status, client.status());
  ASSIGN_OR_RETURN(const uint32_t behind, client.cut_window());
  if (behind > 0) {
    notice("{} in a call that cannot be interrupted without effect: what {} done since the last snapshot is left out",
           behind == 1 ? "1 unit is" : fmt::format("{} units are", behind), behind == 1 ? "it has" : "they have");
  }
  return status.trace;
}

Result<int> make_snapshot(const SnapshotOptions& options) {
  const auto session = find_session(options.of);
  std::string from;
  if (session && is_listed(*session)) {
    ASSIGN_OR_RETURN(from, complete(*session));
  } else if (const auto known = find_trace(options.of)) {
    from = named_directory(*known);
  } else {
    return Error{fmt::format("no session and no trace '{}'; see redrive ps and redrive ls", options.of)};
  }
  // What a recorder is still writing to is not complete, unless it was killed.
  const bool recording = disk().locked(from);
  TRY(copy_window(from, options.directory, recording));
  ASSIGN_OR_RETURN(const auto trace, Trace::open(options.directory));
  const bool promises = trace->settings().keeps_bound() && trace->finished();
  if (promises) keep_bound_or_say({processor_count(), true, !options.no_repair, isatty(STDERR_FILENO) != 0}, *trace);
  return 0;
}

constexpr CommandText kSnapshotText{
    "snapshot",
    "redrive snapshot NAME|TRACE -o DIR [--no-repair]",
    "make a trace of what a recording with --keep holds",
    "The recording goes on. All units take a checkpoint, up to which the new trace goes; it needs nothing of the old "
    "one.\n",
    {kSessionWord, kGivenTraceWord}};

class SnapshotCommand : public CommandWith<SnapshotOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    arguments.option("-o", "DIR", "create the trace in this directory, which must not exist",
                     [this](const std::string& text) -> Result<void> {
                       options_.directory = text;
                       return {};
                     });
    arguments.flag("--no-repair", options_.no_repair, "if replays would take longer than the bound, only say so");
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    ASSIGN_OR_RETURN(options_.of, only_session(arguments, text().name));
    if (options_.directory.empty()) return usage("where to? (give -o DIR)");
    return {};
  }

  Result<int> run() override { return make_snapshot(options_); }
};

}  // namespace

std::unique_ptr<Command> make_snapshot_command() { return std::make_unique<SnapshotCommand>(kSnapshotText); }

}  // namespace redrive
