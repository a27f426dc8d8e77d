#include "supervisor/cli/checkpoint.h"

#include <fmt/format.h>

#include "base/notice.h"
#include "base/parallel.h"
#include "base/text.h"
#include "supervisor/cli/checkpoint_export.h"
#include "supervisor/cli/criu_export.h"
#include "supervisor/cli/host.h"
#include "supervisor/cli/session_text.h"
#include "supervisor/cli/shared_options.h"
#include "supervisor/cli/words.h"

namespace redrive {
namespace {

Result<int> take(const SessionName& session) {
  ASSIGN_OR_RETURN(const CheckpointsTaken checkpoints, SessionClient(session).checkpoint());
  fmt::print("{} took a checkpoint\n", counted(checkpoints.taken, "unit"));
  if (checkpoints.pending > 0) {
    notice("{} in a call that cannot be interrupted without effect, and {} at the next event",
           checkpoints.pending == 1 ? "1 unit is" : fmt::format("{} units are", checkpoints.pending),
           checkpoints.pending == 1 ? "takes it" : "take it");
  }
  return 0;
}

constexpr CommandText kCheckpointText{
    "checkpoint",
    "redrive checkpoint NAME | -o DIR [--format F | --live] [--file-pages] [--jobs N] [--interception TIER] [--json] "
    "[TRACE] UNIT:I | UNIT@EVENT | --break UNIT@EVENT ...",
    "have all units of a session take a checkpoint now, or export states of a trace's processes for other programs",
    "Units of a session that sleep in a call which cannot be entered again take theirs when it ends.\n"
    "With -o, core files for debuggers are written: of a unit as it was when interval I began, or right before EVENT; "
    "or "
    "of\nall units that stand at a distributed breakpoint. With --format criu, images are written that criu(8) "
    "restores:\nprocesses that run on from there. That needs root, and criu.\n",
    {kSessionWord, kTraceWord, kUnitWord}};

class CheckpointCommand : public CommandWith<CheckpointOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    CheckpointOptions& o = options_;
    arguments.option("-o", "DIR", "export into this directory, which must not exist",
                     [&o](const std::string& text) -> Result<void> {
                       if (text.empty()) return Error{"the name of a directory is empty"};
                       o.directory = text;
                       return {};
                     });
    arguments.choice("--format", "F",
                     "what to export: core, an ELF core file of each process; or criu, one checkpoint that criu "
                     "restores (core)",
                     {"core", "criu"}, [&o](const std::string& format) {
                       o.format = format == "criu" ? CheckpointOptions::Format::criu : CheckpointOptions::Format::core;
                     });
    arguments.flag("--live", o.live,
                   "export one checkpoint for criu of all units, where 'redrive live' lets them live");
    arguments.flag("--file-pages", o.file_pages, "let cores also hold what is in mapped files");
    add_break(arguments, "export all units where they stand when UNIT is right before EVENT; may be repeated",
              o.breaks);
    o.jobs = processor_count();
    add_jobs(arguments, "number of intervals to execute at once (one per processor)", o.jobs);
    add_interception(arguments, o.in_process);
    arguments.json(o.json);
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    CheckpointOptions& o = options_;
    const auto& words = arguments.given_words();
    if (o.directory.empty()) {
      for (const char* option :
           {"--format", "--live", "--file-pages", "--break", "--jobs", "--interception", "--json"}) {
        if (arguments.count(option) > 0) return usage(fmt::format("{} needs -o DIR", option));
      }
      if (words.size() == 2) {
        return usage(
            fmt::format("unexpected argument '{}' (give one NAME, or -o DIR to export from a trace)", words[1]));
      }
      ASSIGN_OR_RETURN(o.session, only_session(arguments, text().name));
      return {};
    }
    if (o.live && arguments.count("--format") > 0 && o.format == CheckpointOptions::Format::core) {
      return usage("--live and --format core do not go together: --live is for criu");
    }
    if (o.live) o.format = CheckpointOptions::Format::criu;
    if (o.file_pages && o.format == CheckpointOptions::Format::criu) return usage("--file-pages is for cores");
    if (const auto given = parse_standing(words, o.trace, o.interval, o.place, o.breaks); !given) {
      return usage(given.error().message);
    }
    return {};
  }

  Result<int> run() override {
    if (!options_.directory.empty()) {
      TRY(prepare_to_trace());
      return options_.format == CheckpointOptions::Format::criu ? export_images(options_) : export_checkpoint(options_);
    }
    ASSIGN_OR_RETURN(const SessionName session, find_session(options_.session));
    return take(session);
  }
};

}  // namespace

std::unique_ptr<Command> make_checkpoint_command() { return std::make_unique<CheckpointCommand>(kCheckpointText); }

}  // namespace redrive
