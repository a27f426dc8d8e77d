// A connection to a session's socket, for calls. The session's user may have anybody listen there, who may send
// anything. So at most kMost bytes are read: D-Bus does not read the socket, but a pipe, and what comes from the socket
// is passed on into that. When it is too much, the pipe ends, and with it the connection.
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
  SessionConnection(Fd socket, Fd pipe) : socket_(std::move(socket)), pipe_(std::move(pipe)) {}
  void pass_on();

  Fd socket_;
  Fd pipe_;  // to be written
  size_t left_ = kMost;
  Bus bus_;
  EventSource readable_;  // the socket
};

}  // namespace redrive
