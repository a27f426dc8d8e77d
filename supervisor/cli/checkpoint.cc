// redrive checkpoint: has all units of a session take a checkpoint now.
#include "supervisor/cli/checkpoint.h"

#include <fmt/format.h>

#include "base/notice.h"
#include "base/text.h"
#include "supervisor/cli/session_text.h"

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

constexpr CommandText kText{
    "checkpoint", "redrive checkpoint NAME", "have all units of a session take a checkpoint now",
    "Units that sleep in a call which cannot be entered again take theirs when it ends.\n", kSessionWord};

class CheckpointCommand : public SessionCommand<CheckpointOptions> {
 public:
  using SessionCommand::SessionCommand;

  void declare(Arguments& arguments) override { arguments.words(); }

 private:
  Result<int> run_on(const SessionName& session) override { return take(session); }
};

}  // namespace

std::unique_ptr<Command> make_checkpoint_command() { return std::make_unique<CheckpointCommand>(kText); }

}  // namespace redrive
