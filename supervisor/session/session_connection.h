// A connection to a session's socket, for calls. The session's user may have anybody listen there, who may send
// anything. So at most kMost bytes are read: D-Bus does not read this socket, but one of a pair, and what comes from
// the session is passed on into the other. When it is too much, the pair ends, and with it the connection.
#pragma once

#include <cstddef>
#include <memory>

#include "base/fd.h"
#include "base/result.h"
#include "supervisor/session/session.h"
#include "supervisor/session/systemd.h"

namespace redrive {

class SessionConnection {
 public:
  static constexpr size_t kMost = 1 << 20;  // bytes: what is known of some thousands of units

  // Fails if there is no such session. The connection works while the loop runs, which must outlive it. May be
  // destroyed in a handler of the loop.
  static Result<std::unique_ptr<SessionConnection>> open(const SessionName& session, sd_event* loop);

  sd_bus* bus() const { return bus_.get(); }

 private:
  SessionConnection(Fd socket, Fd to_bus) : socket_(std::move(socket)), to_bus_(std::move(to_bus)) {}
  void pass_on();

  Fd socket_;
  Fd to_bus_;  // the bus reads the other one
  size_t left_ = kMost;
  Bus bus_;
  EventSource readable_;  // the socket
};

}  // namespace redrive
