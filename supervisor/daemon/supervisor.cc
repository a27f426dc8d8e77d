#include "supervisor/daemon/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/notice.h"
#include "base/text.h"

namespace redrive {
namespace {

constexpr size_t kMostOfUser =
    512;  // sessions that are looked after; what a user puts into the directory is not trusted

// Whose call it is, as the bus says. Nothing if that cannot be told.
std::optional<uid_t> caller_of(sd_bus_message* call) {
  if (!call) return {};
  sd_bus_creds* credentials = nullptr;
  if (systemd().bus_query_sender_creds(call, SD_BUS_CREDS_EUID, &credentials) < 0) return {};
  uid_t user = 0;
  const int known = systemd().bus_creds_get_euid(credentials, &user);
  systemd().bus_creds_unref(credentials);
  return known < 0 ? std::optional<uid_t>() : user;
}

// Whether it is the path of a session, known or not.
bool is_session(const std::string& path) {
  const std::string prefix = std::string(kSessionsPath) + "/";
  return path.starts_with(prefix) && path.find('/', prefix.size()) != std::string::npos;
}

bool may_see(uid_t caller, uid_t owner) { return caller == 0 || caller == owner; }

int answer_error(sd_bus_message* call, const char* name, const std::string& text) {
  sd_bus_message* answer = nullptr;
  const int made = systemd().bus_message_new_method_errorf(call, &answer, name, "%s", text.c_str());
  const BusMessage owned(answer);
  return made < 0 ? made : systemd().bus_send(nullptr, answer, nullptr);
}

}  // namespace

struct Supervisor::Session {
  uid_t user = 0;
  std::string name;
  Bus connection;
};

struct Supervisor::Directory {
  EventSource watched;
  bool full = false;  // said so
};

void log_line(const char* priority, const std::string& text) {
  static const bool kJournal = std::getenv("JOURNAL_STREAM") != nullptr;
  write_error((kJournal ? priority : "redrived: ") + printable(text) + "\n");
}

Supervisor::Supervisor() = default;
Supervisor::~Supervisor() = default;

Result<std::unique_ptr<Supervisor>> Supervisor::start() {
  TRY(load_systemd());
  std::unique_ptr<Supervisor> supervisor(new Supervisor);
  TRY(supervisor->prepare());
  TRY(supervisor->offer());
  return supervisor;
}

Result<int> Supervisor::run() {
  const Systemd& sd = systemd();
  sd.notify(0, "READY=1");
  const int status = sd.event_loop(loop_.get());
  sd.notify(0, "STOPPING=1");
  TRY(check_systemd(status, "the system bus has ended"));
  return status;
}

// The sessions must be there when the name is.
Result<void> Supervisor::prepare() {
  const Systemd& sd = systemd();
  sd_event* loop = nullptr;
  TRY(check_systemd(sd.event_new(&loop), "cannot make an event loop"));
  loop_.reset(loop);
  for (const int signal : {SIGTERM, SIGINT}) {
    TRY(check_systemd(sd.event_add_signal(loop, nullptr, signal, nullptr, nullptr), "cannot wait for signals"));
  }
  TRY(check_systemd(sd.event_set_watchdog(loop, 1), "cannot serve the watchdog"));
  const std::string directory = run_directory();
  if (mkdir(directory.c_str(), 0755) == 0) {
    chmod(directory.c_str(), 0755);
  } else if (errno != EEXIST) {
    return errno_error("cannot make " + directory);
  }
  sd_event_source* watched = nullptr;
  const auto changed = [](sd_event_source*, const inotify_event*, void* self) {
    of(self).look_for_sessions();
    return 0;
  };
  TRY(check_systemd(sd.event_add_inotify(loop, &watched, directory.c_str(),
                                         IN_CREATE | IN_MOVED_TO | IN_ATTRIB | IN_ONLYDIR, changed, this),
                    "cannot watch " + directory));
  watched_.reset(watched);
  look_for_sessions();
  return {};
}

Result<void> Supervisor::offer() {
  const Systemd& sd = systemd();
  sd_bus* bus = nullptr;
  TRY(check_systemd(sd.bus_open_system(&bus), "cannot connect to the system bus"));
  bus_.reset(bus);
  interface_ = {
      SD_BUS_VTABLE_START(0),
      SD_BUS_METHOD_WITH_NAMES(
          "ListSessions", "", "", "a(us)", SD_BUS_PARAM(sessions),
          [](sd_bus_message* call, void* self, sd_bus_error*) { return of(self).list(call); },
          SD_BUS_VTABLE_UNPRIVILEGED),
      SD_BUS_METHOD_WITH_NAMES(
          "MakeDirectory", "", "", "s", SD_BUS_PARAM(path),
          [](sd_bus_message* call, void* self, sd_bus_error*) { return of(self).make_directory(call); },
          SD_BUS_VTABLE_UNPRIVILEGED),
      SD_BUS_VTABLE_END,
  };
  // The call goes to the session's own recorder, and its answer back.
  const auto forward = [](sd_bus_message* call, void* found, sd_bus_error*) {
    const Systemd& sd = systemd();
    const Session& session = *static_cast<Session*>(found);
    sd_bus_message* made = nullptr;
    int result = sd.bus_message_new_method_call(session.connection.get(), &made, nullptr, kSessionPath,
                                                kSessionInterface, sd.bus_message_get_member(call));
    if (result < 0) return result;
    const BusMessage forwarded(made);
    if ((result = sd.bus_message_copy(made, call, 1)) < 0) return result;
    const auto answered = [](sd_bus_message* answer, void* asked, sd_bus_error*) {
      const Systemd& sd = systemd();
      const BusMessage call(static_cast<sd_bus_message*>(asked));
      if (const sd_bus_error* error = sd.bus_message_get_error(answer)) {
        return answer_error(call.get(), error->name, error->message ? error->message : error->name);
      }
      sd_bus_message* made = nullptr;
      int result = sd.bus_message_new_method_return(call.get(), &made);
      if (result < 0) return result;
      const BusMessage returned(made);
      if ((result = sd.bus_message_copy(made, answer, 1)) < 0) return result;
      return sd.bus_send(nullptr, made, nullptr);
    };
    BusMessage asked(sd.bus_message_ref(call));
    result = sd.bus_call_async(session.connection.get(), nullptr, made, answered, asked.get(), UINT64_MAX);
    if (result < 0) return result;
    static_cast<void>(asked.release());  // `answered` has it
    return 1;
  };
  session_interface_ = session_interface({forward, forward, forward, forward, forward, forward, forward});
  const auto find = [](sd_bus* on, const char* path, const char*, void* self, void** found, sd_bus_error* error) {
    if (!is_session(path)) return 0;
    Session* const session = of(self).find(path);
    const auto caller = caller_of(systemd().bus_get_current_message(on));
    if (!session || !caller || !may_see(*caller, session->user)) {
      systemd().bus_error_set(error, kNoSessionError, "there is no such session (see redrive ps)");
      return -ENOENT;
    }
    *found = session;
    return 1;
  };
  const auto enumerate = [](sd_bus* on, const char*, void* self, char*** nodes, sd_bus_error*) {
    const auto caller = caller_of(systemd().bus_get_current_message(on));
    const auto paths = caller ? of(self).paths_for(*caller) : std::vector<std::string>();
    *nodes = static_cast<char**>(std::calloc(paths.size() + 1, sizeof(char*)));
    if (!*nodes) return -ENOMEM;
    for (size_t i = 0; i < paths.size(); ++i) (*nodes)[i] = strdup(paths[i].c_str());
    return 0;
  };
  TRY(check_systemd(
      sd.bus_add_object_vtable(bus, nullptr, kSupervisorPath, kSupervisorInterface, interface_.data(), this),
      "cannot serve the bus"));
  TRY(check_systemd(
      sd.bus_add_fallback_vtable(bus, nullptr, kSessionsPath, kSessionInterface, session_interface_.data(), find, this),
      "cannot serve the bus"));
  TRY(check_systemd(sd.bus_add_node_enumerator(bus, nullptr, kSessionsPath, enumerate, this), "cannot serve the bus"));
  TRY(check_systemd(sd.bus_set_exit_on_disconnect(bus, 1), "cannot serve the bus"));
  TRY(check_systemd(sd.bus_attach_event(bus, loop_.get(), 0), "cannot serve the bus"));
  return check_systemd(
      sd.bus_request_name(bus, kSupervisorName, 0),
      fmt::format("cannot be {} on the system bus (does another redrived run, or does the bus not know "
                  "its policy file?)",
                  kSupervisorName));
}

void Supervisor::look_for_sessions() {
  for (const uid_t user : users_with_directory()) look_into(user);
}

void Supervisor::look_into(uid_t user) {
  const auto directory = UserDirectory::open(user);
  if (!directory) return;  // not made yet, or not as it should be
  auto& known = directories_[user];
  if (!known) {
    known = std::make_unique<Directory>();
    const auto changed = [](sd_event_source*, const inotify_event*, void* self) {
      of(self).look_for_sessions();
      return 0;
    };
    sd_event_source* watched = nullptr;
    const std::string path = fmt::format("/proc/self/fd/{}", directory->descriptor());
    const int added =
        systemd().event_add_inotify(loop_.get(), &watched, path.c_str(), IN_MOVED_TO | IN_ONLYDIR, changed, this);
    if (added < 0) log_line(SD_WARNING, fmt::format("cannot watch {}: {}", directory->path(), std::strerror(-added)));
    if (added >= 0) known->watched.reset(watched);
  }
  size_t count = static_cast<size_t>(std::count_if(
      sessions_.begin(), sessions_.end(), [user](const auto& session) { return session.first.first == user; }));
  for (const auto& name : directory->names()) {
    if (sessions_.contains({user, name})) continue;
    if (++count > kMostOfUser) {
      if (!std::exchange(known->full, true)) {
        log_line(SD_WARNING,
                 fmt::format("user {} has more than {} sessions: the others are not served", user, kMostOfUser));
      }
      return;
    }
    add(user, *directory, name);
  }
}

void Supervisor::add(uid_t user, const UserDirectory& directory, const std::string& name) {
  const Systemd& sd = systemd();
  const auto connected = directory.connect(name);
  if (!connected) {
    directory.forget(name);  // if its recorder was killed
    return;
  }
  sd_bus* made = nullptr;
  if (sd.bus_new(&made) < 0) return;
  Bus connection(made);
  const auto gone = [](sd_bus_message* message, void* self, sd_bus_error*) {
    of(self).forget(systemd().bus_message_get_bus(message));
    return 0;
  };
  const int owned = fcntl(connected->get(), F_DUPFD_CLOEXEC, 3);  // by the bus
  const bool works = owned >= 0 && sd.bus_set_fd(made, owned, owned) >= 0 && sd.bus_start(made) >= 0 &&
                     sd.bus_match_signal(made, nullptr, nullptr, "/org/freedesktop/DBus/Local",
                                         "org.freedesktop.DBus.Local", "Disconnected", gone, this) >= 0 &&
                     sd.bus_attach_event(made, loop_.get(), 0) >= 0;
  if (!works) return;
  auto session = std::make_unique<Session>();
  session->user = user;
  session->name = name;
  session->connection = std::move(connection);
  sessions_[{user, name}] = std::move(session);
  log_line(SD_INFO, fmt::format("session '{}' of user {}", name, user));
}

void Supervisor::forget(const sd_bus* connection) {
  const auto ended = std::find_if(sessions_.begin(), sessions_.end(),
                                  [&](const auto& session) { return session.second->connection.get() == connection; });
  if (ended == sessions_.end()) return;
  const auto [user, name] = ended->first;
  sessions_.erase(ended);
  log_line(SD_INFO, fmt::format("session '{}' of user {} has ended", name, user));
  if (const auto directory = UserDirectory::open(user)) directory->forget(name);
}

int Supervisor::list(sd_bus_message* call) {
  const Systemd& sd = systemd();
  const auto caller = caller_of(call);
  if (!caller) return answer_error(call, kFailedError, "it cannot be told who asks");
  look_for_sessions();
  sd_bus_message* made = nullptr;
  int result = sd.bus_message_new_method_return(call, &made);
  if (result < 0) return result;
  const BusMessage answer(made);
  if ((result = sd.bus_message_open_container(made, 'a', "(us)")) < 0) return result;
  for (const auto& [key, session] : sessions_) {
    if (!may_see(*caller, session->user)) continue;
    if ((result = sd.bus_message_append(made, "(us)", session->user, session->name.c_str())) < 0) return result;
  }
  if ((result = sd.bus_message_close_container(made)) < 0) return result;
  return sd.bus_send(nullptr, made, nullptr);
}

int Supervisor::make_directory(sd_bus_message* call) {
  const auto caller = caller_of(call);
  if (!caller) return answer_error(call, kFailedError, "it cannot be told who asks");
  const auto directory = UserDirectory::make(*caller);
  if (!directory) return answer_error(call, kFailedError, directory.error().message);
  look_into(*caller);
  sd_bus_message* made = nullptr;
  int result = systemd().bus_message_new_method_return(call, &made);
  if (result < 0) return result;
  const BusMessage answer(made);
  if ((result = systemd().bus_message_append_basic(made, 's', directory->path().c_str())) < 0) return result;
  return systemd().bus_send(nullptr, made, nullptr);
}

// The session with this object path. Null if there is none.
Supervisor::Session* Supervisor::find(const char* path) {
  const std::string text = path, prefix = std::string(kSessionsPath) + "/";
  if (!text.starts_with(prefix)) return nullptr;
  const size_t slash = text.find('/', prefix.size());
  if (slash == std::string::npos) return nullptr;
  const auto user = parse_number(text.substr(prefix.size(), slash - prefix.size()));
  char* name = nullptr;
  if (!user || *user > UINT32_MAX || systemd().bus_path_decode(path, text.substr(0, slash).c_str(), &name) <= 0)
    return nullptr;
  const std::pair<uid_t, std::string> key(static_cast<uid_t>(*user), name);
  std::free(name);
  if (!sessions_.contains(key)) look_into(key.first);
  const auto known = sessions_.find(key);
  return known == sessions_.end() ? nullptr : known->second.get();
}

std::vector<std::string> Supervisor::paths_for(uid_t caller) const {
  std::vector<std::string> paths;
  for (const auto& [key, session] : sessions_) {
    if (!may_see(caller, session->user)) continue;
    char* path = nullptr;
    const std::string prefix = fmt::format("{}/{}", kSessionsPath, session->user);
    if (systemd().bus_path_encode(prefix.c_str(), session->name.c_str(), &path) >= 0) paths.emplace_back(path);
    std::free(path);
  }
  return paths;
}

}  // namespace redrive
