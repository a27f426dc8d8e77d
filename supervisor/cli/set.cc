// redrive set: changes a session while it records.
#include "supervisor/cli/set.h"

#include <fmt/format.h>

#include "base/units.h"
#include "supervisor/cli/session_text.h"
#include "supervisor/cli/words.h"

namespace redrive {
namespace {

Result<int> change(const SessionName& session, const SetOptions& options) {
  const SessionClient client(session);
  if (options.keep_s > 0) {
    TRY(client.set_keep(options.keep_s));
    fmt::print("{}: it keeps the last {}\n", text_of(session), format_duration(options.keep_s));
  }
  if (options.bound_s <= 0) return 0;
  TRY(client.set_bound(options.bound_s));
  ASSIGN_OR_RETURN(const SessionStatus status, client.status());
  fmt::print("{}: the bound is {}; checkpoints are at most {} of CPU time apart\n", text_of(session),
             format_duration(status.bound_s), format_duration(status.checkpoint_period_s));
  return 0;
}

constexpr CommandText kSetText{
    "set",
    "redrive set NAME [--bound D] [--keep W]",
    "change a session while it records",
    "All units take a checkpoint. Intervals that begin then keep the new bound; what earlier "
    "ones need for it is added\n"
    "when the recording ends, as far as record does that (--no-repair). Everything else is "
    "fixed when a session starts.\n",
    {kSessionWord, kDurationWord}};

class SetCommand : public SessionCommand<SetOptions> {
 public:
  using SessionCommand::SessionCommand;

  void declare(Arguments& arguments) override {
    arguments.duration("--bound", "D", "longest time that a replay of one interval may take",
                       [this](double s) { options_.bound_s = s; });
    arguments.duration("--keep", "W", "keep only the last part of the recording, of this length; not if it keeps all",
                       [this](double s) { options_.keep_s = s; });
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    TRY(SessionCommand::finish(arguments));
    if (arguments.count("--bound") + arguments.count("--keep") == 0) {
      return usage("nothing to change (give --bound or --keep)");
    }
    return {};
  }

 private:
  Result<int> run_on(const SessionName& session) override { return change(session, options_); }
};

}  // namespace

std::unique_ptr<Command> make_set_command() { return std::make_unique<SetCommand>(kSetText); }

}  // namespace redrive
