// Answers for a session, in its recorder: a thread that serves org.redrive.Session1 on the session's socket, to its
// user and root only. It sleeps in epoll_wait(2) unless somebody asks something.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "supervisor/session/session.h"

namespace redrive {

// What the recorder does when it is asked. Called in the server's thread, one at a time.
struct SessionHandlers {
  std::function<Result<SessionStatus>()> status;
  std::function<Result<SessionActivity>()> activity;
  std::function<Result<CheckpointsTaken>()> checkpoint;
  std::function<Result<WindowCut>()> cut_window;
  std::function<Result<void>(double keep_s)> set_keep;
  std::function<Result<void>(double bound_s)> set_bound;
  std::function<void()> end;   // ask the program to end, as by SIGTERM
  std::function<void()> kill;  // end all that is recorded
};

class SessionServer {
 public:
  // Takes the name, for this process's user. Whoever connects is answered once serve() has been called.
  static Result<std::unique_ptr<SessionServer>> claim(const std::string& name);
  // Gives the name back.
  ~SessionServer();
  SessionServer(const SessionServer&) = delete;
  SessionServer& operator=(const SessionServer&) = delete;

  // Starts the thread. What the handlers use must outlive this object.
  Result<void> serve(SessionHandlers handlers);
  // The trace is complete: the program's exit status; or it cannot be completed: the error. This is what those wait for
  // who have asked the session to stop.
  void complete(Result<int> exit_status);

  const std::string& name() const;

 private:
  struct State;
  explicit SessionServer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace redrive
