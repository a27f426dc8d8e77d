#include "supervisor/daemon/supervisor.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/notice.h"
#include "base/text.h"
#include "supervisor/session/run_directory.h"
#include "supervisor/session/session_connection.h"

namespace redrive {
namespace {

// Calls that have no answer yet. Each may hold SessionConnection::kMost bytes, and the unit allows 256 MiB.
constexpr size_t kMostCalls = 128, kMostCallsOfUser = 32;

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

bool may_see(uid_t caller, uid_t owner) { return caller == 0 || caller == owner; }

std::vector<SessionName> sessions_for(uid_t caller) {
  std::vector<SessionName> sessions;
  for (const uid_t user : users_with_directory()) {
    const auto directory = may_see(caller, user) ? UserDirectory::open(user) : Error{};
    if (!directory) continue;  // not made yet, or not as it should be
    for (auto& name : directory->sessions()) sessions.push_back({user, std::move(name)});
  }
  return sessions;
}

int answer_error(sd_bus_message* call, const char* name, const std::string& text) {
  sd_bus_message* answer = nullptr;
  const int made = systemd().bus_message_new_method_errorf(call, &answer, name, "%s", text.c_str());
  const BusMessage owned(answer);
  return made < 0 ? made : systemd().bus_send(nullptr, answer, nullptr);
}

int pass_back(sd_bus_message* call, sd_bus_message* answer) {
  const Systemd& sd = systemd();
  if (const sd_bus_error* error = sd.bus_message_get_error(answer)) {
    return answer_error(call, error->name, error->message ? error->message : error->name);
  }
  sd_bus_message* made = nullptr;
  int result = sd.bus_message_new_method_return(call, &made);
  if (result < 0) return result;
  const BusMessage returned(made);
  if ((result = sd.bus_message_copy(made, answer, 1)) < 0) return result;
  return sd.bus_send(nullptr, made, nullptr);
}

}  // namespace

struct Supervisor::Call {
  Supervisor& supervisor;
  uid_t user;  // whose session it is for
  BusMessage asked;
  std::unique_ptr<SessionConnection> connection;
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
  const auto forward = [](sd_bus_message* call, void* self, sd_bus_error*) { return of(self).forward(call); };
  session_interface_ = session_interface({forward, forward, forward, forward, forward, forward, forward});
  const auto find = [](sd_bus* on, const char* path, const char*, void* self, void** found, sd_bus_error* error) {
    const auto session = session_at(path);
    if (!session) return 0;
    const auto caller = caller_of(systemd().bus_get_current_message(on));
    const auto directory = caller && may_see(*caller, session->user) ? UserDirectory::open(session->user) : Error{};
    if (!directory || !directory->has(session->name)) {
      systemd().bus_error_set(error, kNoSessionError, "there is no such session (see redrive ps)");
      return -ENOENT;
    }
    *found = self;
    return 1;
  };
  const auto enumerate = [](sd_bus* on, const char*, void*, char*** nodes, sd_bus_error*) {
    const auto caller = caller_of(systemd().bus_get_current_message(on));
    std::vector<std::string> paths;
    for (const SessionName& session : caller ? sessions_for(*caller) : std::vector<SessionName>()) {
      paths.push_back(object_path_of(session));
    }
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

int Supervisor::list(sd_bus_message* call) {
  const Systemd& sd = systemd();
  const auto caller = caller_of(call);
  if (!caller) return answer_error(call, kFailedError, "it cannot be told who asks");
  sd_bus_message* made = nullptr;
  int result = sd.bus_message_new_method_return(call, &made);
  if (result < 0) return result;
  const BusMessage answer(made);
  if ((result = sd.bus_message_open_container(made, 'a', "(us)")) < 0) return result;
  for (const SessionName& session : sessions_for(*caller)) {
    if ((result = sd.bus_message_append(made, "(us)", session.user, session.name.c_str())) < 0) return result;
  }
  if ((result = sd.bus_message_close_container(made)) < 0) return result;
  return sd.bus_send(nullptr, made, nullptr);
}

int Supervisor::make_directory(sd_bus_message* call) {
  const auto caller = caller_of(call);
  if (!caller) return answer_error(call, kFailedError, "it cannot be told who asks");
  const auto directory = UserDirectory::make(*caller);
  if (!directory) return answer_error(call, kFailedError, directory.error().message);
  sd_bus_message* made = nullptr;
  int result = systemd().bus_message_new_method_return(call, &made);
  if (result < 0) return result;
  const BusMessage answer(made);
  if ((result = systemd().bus_message_append_basic(made, 's', directory->path().c_str())) < 0) return result;
  return systemd().bus_send(nullptr, made, nullptr);
}

// The call goes to the session's own recorder, and its answer back.
int Supervisor::forward(sd_bus_message* call) {
  const Systemd& sd = systemd();
  const auto session = session_at(sd.bus_message_get_path(call));
  if (!session) return -ENOENT;
  const auto of_user =
      std::count_if(calls_.begin(), calls_.end(), [&](const Call& other) { return other.user == session->user; });
  if (calls_.size() >= kMostCalls || static_cast<size_t>(of_user) >= kMostCallsOfUser) {
    return answer_error(call, SD_BUS_ERROR_LIMITS_EXCEEDED, "too many calls have no answer yet");
  }
  auto connected = SessionConnection::open(*session, loop_.get());
  if (!connected) return answer_error(call, kNoSessionError, connected.error().message);
  std::unique_ptr<SessionConnection>& connection = *connected;
  sd_bus_message* made = nullptr;
  int result = sd.bus_message_new_method_call(connection->bus(), &made, nullptr, kSessionPath, kSessionInterface,
                                              sd.bus_message_get_member(call));
  if (result < 0) return result;
  const BusMessage forwarded(made);
  if ((result = sd.bus_message_copy(made, call, 1)) < 0) return result;
  const auto answered = [](sd_bus_message* answer, void* self, sd_bus_error*) {
    const Call& call = *static_cast<Call*>(self);
    const int result = pass_back(call.asked.get(), answer);
    call.supervisor.end(call);
    return result;
  };
  calls_.push_back({*this, session->user, BusMessage(sd.bus_message_ref(call)), std::move(connection)});
  Call& made_call = calls_.back();
  result = sd.bus_call_async(made_call.connection->bus(), nullptr, made, answered, &made_call, UINT64_MAX);
  if (result < 0) end(made_call);
  return result < 0 ? result : 1;
}

void Supervisor::end(const Call& call) {
  calls_.remove_if([&](const Call& each) { return &each == &call; });
}

}  // namespace redrive
