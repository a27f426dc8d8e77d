// redrived: knows all sessions of the machine, and passes calls on the system bus on to the sessions that they are for.
//
// It keeps nothing of its own: the run-time directory says which sessions there are (session/run_directory.h), and a
// connection to each of them tells when it ends. So it can end at any moment and be started again.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/result.h"
#include "supervisor/session/run_directory.h"
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
  struct Session;
  struct Directory;
  Supervisor();

  Result<void> prepare();
  Result<void> offer();
  void look_for_sessions();
  void look_into(uid_t user);
  void add(uid_t user, const UserDirectory& directory, const std::string& name);
  void forget(const sd_bus* connection);
  int list(sd_bus_message* call);
  int make_directory(sd_bus_message* call);
  Session* find(const char* path);
  std::vector<std::string> paths_for(uid_t caller) const;

  static Supervisor& of(void* self) { return *static_cast<Supervisor*>(self); }

  // The bus has references to these.
  std::vector<sd_bus_vtable> interface_, session_interface_;
  EventLoop loop_;
  Bus bus_;
  EventSource watched_;  // the run-time directory
  std::map<uid_t, std::unique_ptr<Directory>> directories_;
  std::map<std::pair<uid_t, std::string>, std::unique_ptr<Session>> sessions_;
};

// For the journal: a line with its priority, as in sd-daemon(3).
void log_line(const char* priority, const std::string& text);

}  // namespace redrive
