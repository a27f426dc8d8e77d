// Asks sessions, for the commands. By way of redrived on the system bus if it is there, and otherwise on the session's
// own socket, which its user and root can enter. Both answer the same calls, so it makes no difference to the caller; a
// call during which redrived ends is made again on the socket. Many sessions are asked on their sockets, all at once.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/session/run_directory.h"
#include "supervisor/session/session.h"

namespace redrive {

// "NAME" if it is the caller's own, otherwise "USER/NAME".
std::string text_of(const SessionName& session);

// The caller's sessions; root's are everybody's. Sorted.
Result<std::vector<SessionName>> list_sessions();
// The session that a user named: NAME or USER/NAME. Root may leave out USER if only one user has a session of the name.
Result<SessionName> find_session(const std::string& text);

// What each of these answers, in their order. Those that do not answer cost 5 s, however many they are.
std::vector<Result<SessionStatus>> statuses_of(const std::vector<SessionName>& sessions);

// The directory of the caller's own sessions. If it is missing, redrived is asked to make it; root makes its own.
Result<UserDirectory> own_directory();

class SessionClient {
 public:
  explicit SessionClient(SessionName session) : session_(std::move(session)) {}

  Result<SessionStatus> status() const;
  Result<SessionActivity> activity() const;
  Result<CheckpointsTaken> checkpoint() const;
  Result<uint32_t> cut_window() const;  // returns the number of units that are behind
  Result<void> set_bound(double bound_s) const;
  Result<void> set_keep(double keep_s) const;
  // Asks the program to end and waits until the trace is complete. If it has not ended after this time, it is killed.
  // Returns the program's exit status.
  Result<int> stop(std::chrono::microseconds patience) const;

 private:
  using Write = std::function<int(sd_bus_message*)>;
  Result<BusMessage> call(const char* member, const Write& write, bool has_deadline) const;
  Result<void> set(const char* member, double seconds) const;
  template <typename T>
  Result<T> get(const char* member) const;

  SessionName session_;
};

}  // namespace redrive
