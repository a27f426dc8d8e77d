#include "supervisor/session/session_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace redrive {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kTimeout_us = 5'000'000;  // for what a recorder can do at once
constexpr uint64_t kNoTimeout = UINT64_MAX;

class BusError {
 public:
  BusError() = default;
  ~BusError() { systemd().bus_error_free(&error_); }
  BusError(const BusError&) = delete;
  BusError& operator=(const BusError&) = delete;

  sd_bus_error* get() { return &error_; }
  std::string_view name() const { return error_.name ? error_.name : ""; }
  // Whether redrive has answered it, and not something on the way to it.
  bool is_answer() const { return name().starts_with("org.redrive.Error."); }
  std::string message() const { return error_.message ? error_.message : std::string(name()); }

 private:
  sd_bus_error error_ = SD_BUS_ERROR_NULL;
};

// What a call came to.
struct Called {
  BusMessage answer;
  std::optional<Error> refused;  // it was answered with an error
  std::optional<Error> failed;   // it was not answered
  bool too_late = false;         // ... in time
};

// Whoever accepts a connection may say nothing on it. The library would wait 90 s for that.
bool becomes_ready(sd_bus* bus, Clock::time_point until) {
  const Systemd& sd = systemd();
  for (;;) {
    const int ready = sd.bus_is_ready(bus);
    if (ready != 0) return ready > 0;
    const int done = sd.bus_process(bus, nullptr);
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(until - Clock::now());
    if (done < 0 || left.count() <= 0) return false;
    if (done == 0 && sd.bus_wait(bus, static_cast<uint64_t>(left.count())) < 0) return false;
  }
}

Called call_on(sd_bus* bus, const char* destination, const std::string& path, const char* interface, const char* member,
               const std::function<int(sd_bus_message*)>& write, uint64_t timeout_us) {
  const Systemd& sd = systemd();
  const auto failed = [](int result) { return Called{nullptr, {}, errno_error("no answer", -result)}; };
  const auto until = Clock::now() + std::chrono::microseconds(kTimeout_us);
  if (!becomes_ready(bus, until)) return {nullptr, {}, Error{"it cannot be connected to"}, Clock::now() >= until};
  sd_bus_message* made = nullptr;
  const int begun = sd.bus_message_new_method_call(bus, &made, destination, path.c_str(), interface, member);
  if (begun < 0) return failed(begun);
  const BusMessage call(made);
  if (const int written = write(made); written < 0) return failed(written);
  BusError error;
  sd_bus_message* answer = nullptr;
  const int result = sd.bus_call(bus, made, timeout_us, error.get(), &answer);
  if (result >= 0) return {BusMessage(answer), {}, {}};
  if (error.is_answer()) return {nullptr, Error{error.message()}, {}};
  return {nullptr,
          {},
          Error{error.message().empty() ? std::strerror(-result) : error.message()},
          timeout_us != kNoTimeout && Clock::now() >= until};
}

int write_nothing(sd_bus_message*) { return 0; }

// Null if there is no system bus.
Bus open_system_bus() {
  sd_bus* bus = nullptr;
  return systemd().bus_open_system(&bus) < 0 ? Bus() : Bus(bus);
}

// Of redrived itself.
Called call_supervisor(const char* member) {
  const Bus bus = open_system_bus();
  if (!bus) return {nullptr, {}, Error{"there is no system bus"}};
  return call_on(bus.get(), kSupervisorName, kSupervisorPath, kSupervisorInterface, member, write_nothing, kTimeout_us);
}

Result<std::vector<SessionName>> read_list(sd_bus_message* answer) {
  std::vector<SessionName> sessions;
  int got = systemd().bus_message_enter_container(answer, 'a', "(us)");
  while (got > 0) {
    uint32_t user = 0;
    const char* name = nullptr;
    got = systemd().bus_message_read(answer, "(us)", &user, &name);
    if (got > 0) sessions.push_back({user, name});
  }
  TRY(check_systemd(got, "redrived's answer cannot be read"));
  return sessions;
}

// As the run-time directory has them.
std::vector<SessionName> look_for_sessions() {
  std::vector<SessionName> sessions;
  const std::vector<uid_t> users = geteuid() == 0 ? users_with_directory() : std::vector<uid_t>{geteuid()};
  for (const uid_t user : users) {
    const auto directory = UserDirectory::open(user);
    if (!directory) continue;
    for (auto& name : directory->names()) {
      if (directory->connect(name)) sessions.push_back({user, std::move(name)});
    }
  }
  return sessions;
}

Result<uid_t> user_named(const std::string& text) {
  if (const auto number = parse_number(text)) return static_cast<uid_t>(*number);
  if (const passwd* user = getpwnam(text.c_str())) return user->pw_uid;
  return Error{fmt::format("there is no user '{}'", text)};
}

std::string path_of(const SessionName& session) {
  char* path = nullptr;
  const std::string prefix = fmt::format("{}/{}", kSessionsPath, session.user);
  systemd().bus_path_encode(prefix.c_str(), session.name.c_str(), &path);
  const std::string out = path ? path : "";
  std::free(path);
  return out;
}

}  // namespace

std::string text_of(const SessionName& session) {
  if (session.user == geteuid()) return session.name;
  const passwd* user = getpwuid(session.user);
  return fmt::format("{}/{}", user ? user->pw_name : std::to_string(session.user), session.name);
}

namespace {

Error no_answer(const SessionName& session, const Called& called) {
  return Error{fmt::format("session '{}' does not answer: {}", text_of(session), called.failed->message)};
}

}  // namespace

Result<std::vector<SessionName>> list_sessions() {
  TRY(load_systemd());
  const Called called = call_supervisor("ListSessions");
  if (called.refused) return *called.refused;
  if (called.answer) return read_list(called.answer.get());
  return look_for_sessions();
}

Result<SessionName> find_session(const std::string& text) {
  TRY(load_systemd());
  const size_t slash = text.find('/');
  const std::string name = slash == std::string::npos ? text : text.substr(slash + 1);
  TRY(check_session_name(name));
  if (slash != std::string::npos) {
    ASSIGN_OR_RETURN(const uid_t user, user_named(text.substr(0, slash)));
    return SessionName{user, name};
  }
  const SessionName own{geteuid(), name};
  if (geteuid() != 0) return own;
  ASSIGN_OR_RETURN(std::vector<SessionName> all, list_sessions());
  if (std::find(all.begin(), all.end(), own) != all.end()) return own;
  std::erase_if(all, [&](const SessionName& session) { return session.name != name; });
  if (all.size() > 1) {
    return Error{fmt::format("several users have a session '{}': name one, as in '{}'", name, text_of(all.front()))};
  }
  return all.empty() ? own : all.front();
}

Result<UserDirectory> own_directory() {
  const uid_t user = geteuid();
  if (UserDirectory::exists(user)) return UserDirectory::open(user);
  const Called called = call_supervisor("MakeDirectory");
  if (called.refused) return *called.refused;
  if (called.answer) return UserDirectory::open(user);
  if (user == 0) return UserDirectory::make(user);
  return Error{
      fmt::format("redrived does not answer ({}), and has not made {}/{} yet: start redrived.service (redrive record "
                  "without --session needs neither)",
                  called.failed->message, run_directory(), user)};
}

Result<BusMessage> SessionClient::call(const char* member, const Write& write, uint64_t timeout_us) const {
  TRY(load_systemd());
  if (const Bus bus = open_system_bus()) {
    Called called =
        call_on(bus.get(), kSupervisorName, path_of(session_), kSessionInterface, member, write, timeout_us);
    if (called.refused) return *called.refused;
    if (called.answer) return std::move(called.answer);
    if (called.too_late) return no_answer(session_, called);
  }
  return call_directly(member, write, timeout_us);
}

Result<BusMessage> SessionClient::call_directly(const char* member, const Write& write, uint64_t timeout_us) const {
  const Error none{fmt::format("there is no session '{}' (see redrive ps)", text_of(session_))};
  if (geteuid() != 0 && session_.user != geteuid()) return none;
  if (!UserDirectory::exists(session_.user)) return none;
  ASSIGN_OR_RETURN(const UserDirectory directory, UserDirectory::open(session_.user));
  ASSIGN_OR_RETURN(const Fd connection, directory.connect(session_.name));
  const Systemd& sd = systemd();
  sd_bus* made = nullptr;
  TRY(check_systemd(sd.bus_new(&made), "cannot connect"));
  const Bus bus(made);
  const int owned = fcntl(connection.get(), F_DUPFD_CLOEXEC, 3);  // by the bus
  TRY(check_systemd(sd.bus_set_fd(made, owned, owned), "cannot connect"));
  TRY(check_systemd(sd.bus_start(made), "cannot connect"));
  Called called = call_on(made, nullptr, kSessionPath, kSessionInterface, member, write, timeout_us);
  if (called.answer) return std::move(called.answer);
  if (called.refused) return *called.refused;
  return no_answer(session_, called);
}

template <typename T>
Result<T> SessionClient::get(const char* member) const {
  ASSIGN_OR_RETURN(const BusMessage answer, call(member, write_nothing, kTimeout_us));
  T value;
  TRY(parse(answer.get(), value));
  return value;
}

Result<SessionStatus> SessionClient::status() const { return get<SessionStatus>("GetStatus"); }

Result<SessionActivity> SessionClient::activity() const { return get<SessionActivity>("GetActivity"); }

Result<CheckpointsTaken> SessionClient::checkpoint() const { return get<CheckpointsTaken>("Checkpoint"); }

Result<uint32_t> SessionClient::cut_window() const {
  ASSIGN_OR_RETURN(const WindowCut cut, get<WindowCut>("CutWindow"));
  return cut.units_behind;
}

Result<void> SessionClient::set_bound(double bound_s) const { return set("SetBound", bound_s); }

Result<void> SessionClient::set_keep(double keep_s) const { return set("SetKeep", keep_s); }

Result<void> SessionClient::set(const char* member, double seconds) const {
  TRY(call(
      member, [seconds](sd_bus_message* message) { return systemd().bus_message_append_basic(message, 'd', &seconds); },
      kTimeout_us));
  return {};
}

Result<int> SessionClient::stop(std::chrono::microseconds patience) const {
  const auto patience_us = static_cast<uint64_t>(patience.count());
  ASSIGN_OR_RETURN(const BusMessage answer, call(
                                                "Stop",
                                                [patience_us](sd_bus_message* message) {
                                                  return systemd().bus_message_append_basic(message, 't', &patience_us);
                                                },
                                                kNoTimeout));
  int32_t status = 0;
  TRY(check_systemd(systemd().bus_message_read_basic(answer.get(), 'i', &status), "the answer cannot be read"));
  return static_cast<int>(status);
}

}  // namespace redrive
