// What the commands for sessions share: how users name a session, and how it is shown.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "supervisor/cli/command.h"
#include "supervisor/session/session_client.h"

namespace redrive {

// The only word that was given.
Result<std::string> only_session(const Arguments& arguments, const char* command);
// Whether the session is still there.
bool is_listed(const SessionName& session);
// Since it began.
double age_s(const SessionStatus& status);
nlohmann::ordered_json to_json(const SessionStatus& status);

// A command about one session. Its options hold that session's name.
template <typename Options>
class SessionCommand : public CommandWith<Options> {
 public:
  using CommandWith<Options>::CommandWith;

  Result<void> finish(const Arguments& arguments) override {
    ASSIGN_OR_RETURN(this->options_.session, only_session(arguments, this->text().name));
    return {};
  }

  Result<int> run() override {
    ASSIGN_OR_RETURN(const SessionName session, find_session(this->options_.session));
    return run_on(session);
  }

 protected:
  virtual Result<int> run_on(const SessionName& session) = 0;
};

}  // namespace redrive
