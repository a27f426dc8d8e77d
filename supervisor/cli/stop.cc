// redrive stop: ends a session's program, and waits until its trace is complete.
#include "supervisor/cli/stop.h"

#include <fmt/format.h>

#include <chrono>

#include "base/text.h"
#include "supervisor/cli/session_text.h"
#include "supervisor/cli/words.h"

namespace redrive {
namespace {

Result<int> stop(const SessionName& session, const StopOptions& options) {
  const SessionClient client(session);
  ASSIGN_OR_RETURN(const SessionStatus status, client.status());
  const std::chrono::duration<double> timeout(options.timeout_s);
  ASSIGN_OR_RETURN(const int exit_status, client.stop(std::chrono::duration_cast<std::chrono::microseconds>(timeout)));
  fmt::print("{}: ended with status {}; recorded to {}\n", text_of(session), exit_status, printable(status.trace));
  return 0;
}

constexpr CommandText kStopText{
    "stop",
    "redrive stop [--timeout D] NAME",
    "end a session's program and complete its trace",
    "The program is sent SIGTERM. If it has not ended after the timeout, everything that is recorded is killed.\n",
    {kSessionWord, kDurationWord}};

class StopCommand : public SessionCommand<StopOptions> {
 public:
  using SessionCommand::SessionCommand;

  void declare(Arguments& arguments) override {
    arguments.duration("--timeout", "D", "time that the program has to end by itself (10s)",
                       [this](double s) { options_.timeout_s = s; });
    arguments.words();
  }

 private:
  Result<int> run_on(const SessionName& session) override { return stop(session, options_); }
};

}  // namespace

std::unique_ptr<Command> make_stop_command() { return std::make_unique<StopCommand>(kStopText); }

}  // namespace redrive
