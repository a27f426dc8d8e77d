// redrived: knows all sessions of the machine, and passes calls on the system bus on to the sessions that they are for.
//
// It keeps nothing of its own: the run-time directory says which sessions there are (session/run_directory.h), and each
// call gets a connection of its own. So it can end at any moment and be started again. What it holds is bounded: the
// calls that have no answer yet, and what each of them may be answered (session/session_connection.h).
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/session/session.h"

namespace redrive {

class Supervisor {
 public:
  // Connects to the system bus, finds the sessions, and takes its name.
  static Result<std::unique_ptr<Supervisor>> start();
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Serves until SIGTERM or SIGINT, which must be blocked, or until the bus ends. Returns the exit status.
  Result<int> run();

 private:
  struct Call;
  Supervisor();

  Result<void> prepare();
  Result<void> offer();
  int list(sd_bus_message* call);
  int make_directory(sd_bus_message* call);
  int forward(sd_bus_message* call);
  void end(const Call& call);

  static Supervisor& of(void* self) { return *static_cast<Supervisor*>(self); }

  // The bus has references to these.
  std::vector<sd_bus_vtable> interface_, session_interface_;
  EventLoop loop_;
  Bus bus_;
  std::list<Call> calls_;  // that have no answer yet
};

// For the journal: a line with its priority, as in sd-daemon(3).
void log_line(const char* priority, const std::string& text);

}  // namespace redrive
