// redrive status: what is known about one session.
#include "supervisor/cli/status.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/session_text.h"
#include "supervisor/cli/words.h"

namespace redrive {
namespace {

Result<int> show(const SessionName& session, const SessionStatusOptions& options) {
  ASSIGN_OR_RETURN(const SessionStatus status, SessionClient(session).status());
  if (options.json) {
    print_json(to_json(status));
    return 0;
  }
  const auto line = [](const char* what, const std::string& value) {
    fmt::print("{:<12}{}\n", what, printable(value));
  };
  line("session", text_of(session));
  line("state", status.state);
  line("command", join_words(status.command));
  line("trace", status.trace);
  line("age", format_duration(age_s(status)));
  line("program", fmt::format("process {}", status.program));
  line("recorder", fmt::format("process {}", status.recorder));
  line("signals", fmt::format("to process {}", status.signals_to));
  line("alive",
       fmt::format("{} in {}", status.processes == 1 ? "1 process" : fmt::format("{} processes", status.processes),
                   counted(status.units, "unit")));
  line("events", fmt::format("{}", status.events));
  if (status.keep_s > 0) line("keeps", "the last " + format_duration(status.keep_s));
  if (status.keep_bytes > 0) line("keeps", "the last " + format_size(status.keep_bytes));
  line("bound", status.bound_s > 0 ? format_duration(status.bound_s) : "none");
  line("checkpoints", fmt::format("at most {} of CPU time apart", format_duration(status.checkpoint_period_s)));
  return 0;
}

constexpr CommandText kSessionStatusText{
    "status", "redrive status [--json] NAME", "show what is known about a session", "", {kSessionWord}};

class SessionStatusCommand : public SessionCommand<SessionStatusOptions> {
 public:
  using SessionCommand::SessionCommand;

  void declare(Arguments& arguments) override {
    arguments.json(options_.json);
    arguments.words();
  }

 private:
  Result<int> run_on(const SessionName& session) override { return show(session, options_); }
};

}  // namespace

std::unique_ptr<Command> make_status_command() { return std::make_unique<SessionStatusCommand>(kSessionStatusText); }

}  // namespace redrive
