#include "supervisor/session/session_client.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "supervisor/session/session_connection.h"

namespace redrive {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kGetStatus[] = "GetStatus";

constexpr std::chrono::seconds kTimeout{5};  // for what a recorder can do at once

using Deadline = std::optional<Clock::time_point>;  // none: never
Deadline soon() { return Clock::now() + kTimeout; }

// What a call came to.
struct Called {
  BusMessage answer;
  std::optional<Error> refused;  // it was answered with an error
  std::optional<Error> failed;   // it was not answered
  bool too_late = false;         // ... in time
};

// A call that is under way, which the answer finds by its address.
struct Asked {
  Called called;
  bool ended = false;

  Asked() = default;
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
};

// Who answers, and as what.
struct Object {
  const char* destination;
  std::string path;
  const char* interface;
};

using Write = std::function<int(sd_bus_message*)>;
int write_nothing(sd_bus_message*) { return 0; }

Result<EventLoop> make_loop() {
  sd_event* loop = nullptr;
  TRY(check_systemd(systemd().event_new(&loop), "cannot make an event loop"));
  return EventLoop(loop);
}

template <typename Done>
void run_until(sd_event* loop, const Deadline& deadline, const Done& done) {
  while (!done()) {
    uint64_t left_us = UINT64_MAX;
    if (deadline) {
      const auto left = std::chrono::duration_cast<std::chrono::microseconds>(*deadline - Clock::now());
      if (left.count() <= 0) return;
      left_us = static_cast<uint64_t>(left.count());
    }
    if (systemd().event_run(loop, left_us) < 0) return;
  }
}

int note_answer(sd_bus_message* answer, void* self, sd_bus_error*) {
  Asked& asked = *static_cast<Asked*>(self);
  asked.ended = true;
  const sd_bus_error* const error = systemd().bus_message_get_error(answer);
  if (!error) {
    asked.called.answer.reset(systemd().bus_message_ref(answer));
    return 0;
  }
  // Whether redrive has answered it, and not something on the way to it.
  const bool refused = std::string_view(error->name).starts_with("org.redrive.Error.");
  (refused ? asked.called.refused : asked.called.failed) = Error{error->message ? error->message : error->name};
  return 0;
}

void ask(sd_bus* bus, const Object& object, const char* member, const Write& write, Asked& asked) {
  const Systemd& sd = systemd();
  const auto make = [&] {
    sd_bus_message* made = nullptr;
    int result =
        sd.bus_message_new_method_call(bus, &made, object.destination, object.path.c_str(), object.interface, member);
    if (result < 0) return result;
    const BusMessage call(made);
    if ((result = write(made)) < 0) return result;
    return sd.bus_call_async(bus, nullptr, made, note_answer, &asked, UINT64_MAX);
  };
  if (const int result = make(); result < 0) {
    asked.called.failed = errno_error("no answer", -result);
    asked.ended = true;
  }
}

void give_up(Asked& asked) {
  if (asked.ended) return;
  asked.called.failed = Error{"it takes too long"};
  asked.called.too_late = true;
}

// Whoever accepts a connection may say nothing on it, so connecting has a deadline even if the call has none.
Called call_on(sd_event* loop, sd_bus* bus, const Object& object, const char* member, const Write& write,
               bool has_deadline) {
  const Systemd& sd = systemd();
  const Deadline deadline = soon();
  run_until(loop, deadline, [&] { return sd.bus_is_ready(bus) > 0 || sd.bus_is_open(bus) <= 0; });
  if (sd.bus_is_ready(bus) <= 0) {
    return {nullptr, {}, Error{"it cannot be connected to"}, Clock::now() >= *deadline};
  }
  Asked asked;
  ask(bus, object, member, write, asked);
  run_until(loop, has_deadline ? soon() : Deadline(), [&] { return asked.ended; });
  give_up(asked);
  return std::move(asked.called);
}

// Null if there is no system bus.
Bus open_system_bus(sd_event* loop) {
  sd_bus* made = nullptr;
  if (systemd().bus_open_system(&made) < 0) return {};
  Bus bus(made);
  return systemd().bus_attach_event(made, loop, SD_EVENT_PRIORITY_NORMAL) < 0 ? Bus() : std::move(bus);
}

// Of redrived itself.
Called call_supervisor(const char* member) {
  const auto loop = make_loop();
  const Bus bus = loop ? open_system_bus(loop->get()) : Bus();
  if (!bus) return {nullptr, {}, Error{"there is no system bus"}};
  return call_on(loop->get(), bus.get(), {kSupervisorName, kSupervisorPath, kSupervisorInterface}, member,
                 write_nothing, true);
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
    for (auto& name : directory->sessions()) sessions.push_back({user, std::move(name)});
  }
  return sessions;
}

Result<uid_t> user_named(const std::string& text) {
  if (const auto number = parse_number(text)) return static_cast<uid_t>(*number);
  if (const passwd* user = getpwnam(text.c_str())) return user->pw_uid;
  return Error{fmt::format("there is no user '{}'", text)};
}

const Object& object_of_recorder() {
  static const Object kObject{nullptr, kSessionPath, kSessionInterface};
  return kObject;
}

// To its own socket.
Result<std::unique_ptr<SessionConnection>> connect_to(const SessionName& session, sd_event* loop) {
  const Error none{fmt::format("there is no session '{}' (see redrive ps)", text_of(session))};
  if (geteuid() != 0 && session.user != geteuid()) return none;
  if (!UserDirectory::exists(session.user)) return none;
  return SessionConnection::open(session, loop);
}

}  // namespace

std::string text_of(const SessionName& session) {
  if (session.user == geteuid()) return session.name;
  const passwd* user = getpwuid(session.user);
  return fmt::format("{}/{}", user ? user->pw_name : std::to_string(session.user), session.name);
}

namespace {

Result<BusMessage> answer_of(const SessionName& session, Called called) {
  if (called.refused) return *called.refused;
  if (called.answer) return std::move(called.answer);
  return Error{fmt::format("session '{}' does not answer: {}", text_of(session), called.failed->message)};
}

template <typename T>
Result<T> parsed(sd_bus_message* answer) {
  T value;
  TRY(parse(answer, value));
  return value;
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

std::vector<Result<SessionStatus>> statuses_of(const std::vector<SessionName>& sessions) {
  struct Question {
    std::unique_ptr<SessionConnection> connection;
    Asked asked;
  };
  const auto loaded = load_systemd();
  const auto loop = loaded ? make_loop() : Result<EventLoop>(loaded.error());
  if (!loop) return std::vector<Result<SessionStatus>>(sessions.size(), loop.error());
  std::list<Question> questions;  // in the order of `sessions`
  for (const SessionName& session : sessions) {
    Question& question = questions.emplace_back();
    if (auto connection = connect_to(session, loop->get())) {
      question.connection = std::move(*connection);
      ask(question.connection->bus(), object_of_recorder(), kGetStatus, write_nothing, question.asked);
    } else {
      question.asked.called.refused = connection.error();
      question.asked.ended = true;
    }
  }
  run_until(loop->get(), soon(), [&] {
    return std::all_of(questions.begin(), questions.end(), [](const Question& each) { return each.asked.ended; });
  });
  std::vector<Result<SessionStatus>> statuses;
  for (auto question = questions.begin(); question != questions.end(); ++question) {
    give_up(question->asked);
    const auto answer = answer_of(sessions[statuses.size()], std::move(question->asked.called));
    statuses.push_back(answer ? parsed<SessionStatus>(answer->get()) : Result<SessionStatus>(answer.error()));
  }
  return statuses;
}

Result<BusMessage> SessionClient::call(const char* member, const Write& write, bool has_deadline) const {
  TRY(load_systemd());
  ASSIGN_OR_RETURN(const EventLoop loop, make_loop());
  if (const Bus bus = open_system_bus(loop.get())) {
    Called called = call_on(loop.get(), bus.get(), {kSupervisorName, object_path_of(session_), kSessionInterface},
                            member, write, has_deadline);
    if (!called.failed || called.too_late) return answer_of(session_, std::move(called));
  }
  ASSIGN_OR_RETURN(const auto connection, connect_to(session_, loop.get()));
  return answer_of(session_, call_on(loop.get(), connection->bus(), object_of_recorder(), member, write, has_deadline));
}

template <typename T>
Result<T> SessionClient::get(const char* member) const {
  ASSIGN_OR_RETURN(const BusMessage answer, call(member, write_nothing, true));
  return parsed<T>(answer.get());
}

Result<SessionStatus> SessionClient::status() const { return get<SessionStatus>(kGetStatus); }

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
      true));
  return {};
}

Result<int> SessionClient::stop(std::chrono::microseconds patience) const {
  const auto patience_us = static_cast<uint64_t>(patience.count());
  ASSIGN_OR_RETURN(const BusMessage answer, call(
                                                "Stop",
                                                [patience_us](sd_bus_message* message) {
                                                  return systemd().bus_message_append_basic(message, 't', &patience_us);
                                                },
                                                false));
  int32_t status = 0;
  TRY(check_systemd(systemd().bus_message_read_basic(answer.get(), 'i', &status), "the answer cannot be read"));
  return static_cast<int>(status);
}

}  // namespace redrive
