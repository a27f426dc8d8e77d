// What the commands for sessions share: how users name a session, and how it is shown.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "supervisor/cli/command.h"
#include "supervisor/session/session_client.h"

namespace redrive {

// For CommandText::words.
inline constexpr char kSessionWord[] = "NAME: from 'redrive ps'; root names a session of another user as USER/NAME\n";

// The only word that was given.
Result<std::string> only_session(const Arguments& arguments, const char* command);
// Whether the session is still there.
bool is_listed(const SessionName& session);
// Since it began.
double age_s(const SessionStatus& status);
nlohmann::ordered_json to_json(const SessionStatus& status);

}  // namespace redrive
