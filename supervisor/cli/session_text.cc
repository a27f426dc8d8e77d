#include "supervisor/cli/session_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace redrive {

Result<std::string> only_session(const Arguments& arguments, const char* command) {
  const auto& words = arguments.given_words();
  if (words.empty()) return usage_error(command, "no session given");
  if (words.size() > 1) return usage_error(command, fmt::format("unexpected argument '{}' (give one NAME)", words[1]));
  return words[0];
}

bool is_listed(const SessionName& session) {
  const auto sessions = list_sessions();
  return sessions && std::find(sessions->begin(), sessions->end(), session) != sessions->end();
}

double age_s(const SessionStatus& status) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto age = now - std::chrono::microseconds(status.started_unix_us);
  return std::max(0.0, std::chrono::duration<double>(age).count());
}

nlohmann::ordered_json to_json(const SessionStatus& status) {
  return {{"name", status.name},
          {"user", status.user},
          {"state", status.state},
          {"recorder", status.recorder},
          {"program", status.program},
          {"signals_to", status.signals_to},
          {"command", status.command},
          {"trace", status.trace},
          {"started_unix_s", static_cast<double>(status.started_unix_us) * 1e-6},
          {"units", status.units},
          {"processes", status.processes},
          {"events", status.events},
          {"keep_s", status.keep_s > 0 ? nlohmann::ordered_json(status.keep_s) : nlohmann::ordered_json()},
          {"keep_bytes", status.keep_bytes > 0 ? nlohmann::ordered_json(status.keep_bytes) : nlohmann::ordered_json()},
          {"bound_s", status.bound_s > 0 ? nlohmann::ordered_json(status.bound_s) : nlohmann::ordered_json()},
          {"checkpoint_period_s", status.checkpoint_period_s}};
}

}  // namespace redrive
