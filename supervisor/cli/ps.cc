// redrive ps: the sessions that there are.
#include "supervisor/cli/ps.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "supervisor/cli/columns.h"
#include "supervisor/cli/session_text.h"

namespace redrive {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> cells(const SessionName& session, const Result<SessionStatus>& asked) {
  if (!asked) return {text_of(session), "no answer", "", "", "", "", asked.error().message};
  const SessionStatus& status = *asked;
  return {text_of(session),
          status.state,
          format_duration(age_s(status)),
          fmt::format("{}", status.processes),
          fmt::format("{}", status.events),
          status.bound_s > 0 ? format_duration(status.bound_s) : "-",
          join_words(status.command)};
}

Result<int> list(const PsOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<SessionName> sessions, list_sessions());
  const std::vector<Result<SessionStatus>> statuses = statuses_of(sessions);
  const auto answers = [](const Result<SessionStatus>& status) { return static_cast<bool>(status); };
  const bool all_answer = std::all_of(statuses.begin(), statuses.end(), answers);
  // Those that do not answer may have ended since they were listed.
  ASSIGN_OR_RETURN(const std::vector<SessionName> left, all_answer ? sessions : list_sessions());
  Json rows = Json::array();
  Columns columns({"NAME", "STATE", ">AGE", ">PROCESSES", ">EVENTS", ">BOUND", "COMMAND"});
  size_t shown = 0;
  for (size_t i = 0; i < sessions.size(); ++i) {
    const SessionName& session = sessions[i];
    const Result<SessionStatus>& status = statuses[i];
    if (!status && std::find(left.begin(), left.end(), session) == left.end()) continue;
    ++shown;
    if (options.json) {
      rows.push_back(status ? to_json(*status)
                            : Json{{"name", session.name}, {"user", session.user}, {"state", "no answer"}});
    } else {
      columns.add(cells(session, status));
    }
  }
  if (options.json) {
    print_json({{"sessions", rows}});
  } else if (shown == 0) {
    fmt::print("no sessions\n");
  } else {
    columns.print();
  }
  return 0;
}

constexpr CommandText kPsText{"ps",
                              "redrive ps [--json]",
                              "list sessions",
                              "Lists the caller's own sessions; root sees everybody's, as USER/NAME.\n",
                              {}};

class PsCommand : public CommandWith<PsOptions> {
 public:
  using CommandWith::CommandWith;

  void declare(Arguments& arguments) override {
    arguments.json(options_.json);
    arguments.words();
  }

  Result<void> finish(const Arguments& arguments) override {
    if (arguments.has_words()) return usage(fmt::format("unexpected argument '{}'", arguments.given_words()[0]));
    return {};
  }

  Result<int> run() override { return list(options_); }
};

}  // namespace

std::unique_ptr<Command> make_ps_command() { return std::make_unique<PsCommand>(kPsText); }

}  // namespace redrive
