#include "supervisor/session/session_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <list>
#include <thread>

#include "base/fd.h"
#include "base/notice.h"
#include "base/units.h"
#include "supervisor/session/run_directory.h"

namespace redrive {
namespace {

constexpr char kThreadName[] = "session";
constexpr uint64_t kLongestPatience_us = uint64_t{365} * 24 * 3600 * 1'000'000;

int answer_error(sd_bus_message* call, const Error& error) {
  sd_bus_message* answer = nullptr;
  const int made = systemd().bus_message_new_method_errorf(call, &answer, kFailedError, "%s", error.message.c_str());
  const BusMessage owned(answer);
  return made < 0 ? made : systemd().bus_send(nullptr, answer, nullptr);
}

// Answers with what `write` appends.
template <typename Write>
int answer(sd_bus_message* call, const Write& write) {
  sd_bus_message* answer = nullptr;
  if (const int made = systemd().bus_message_new_method_return(call, &answer); made < 0) return made;
  const BusMessage owned(answer);
  if (const Result<void> written = write(answer); !written) return answer_error(call, written.error());
  return systemd().bus_send(nullptr, answer, nullptr);
}

template <typename T>
int answer_with(sd_bus_message* call, const Result<T>& value) {
  if (!value) return answer_error(call, value.error());
  return answer(call, [&](sd_bus_message* message) { return append(message, *value); });
}

bool may_ask(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

}  // namespace

struct SessionServer::State {
  State(std::string session, UserDirectory where, Fd socket)
      : name(std::move(session)),
        directory(std::move(where)),
        listener(std::move(socket)),
        woken(eventfd(0, EFD_CLOEXEC)) {}

  const std::string name;
  const UserDirectory directory;
  Fd listener;
  const Fd woken;  // by the owner: what is below has changed
  std::atomic<bool> leaving{false};
  std::atomic<bool> is_complete{false};
  Result<int> exit_status = 0;  // once is_complete is set
  std::thread thread;

  // Used by the thread:
  SessionHandlers handlers;
  EventLoop loop;
  EventSource accepting;
  std::list<Bus> connections;
  std::list<BusMessage> stops;  // calls that are answered by complete()
  std::list<EventSource> timers;
  bool ending = false;

  Result<void> prepare();
  void run();
  void accept_all();
  void add(const Fd& connection);
  static int set(sd_bus_message* call, const char* what, const std::function<Result<void>(double)>& handler);
  int stop(sd_bus_message* call);
  void answer_stops();
  const sd_bus_vtable* interface();

  static State& of(void* self) { return *static_cast<State*>(self); }
};

SessionServer::SessionServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<SessionServer>> SessionServer::claim(const std::string& name) {
  TRY(check_session_name(name));
  TRY(load_systemd());
  ASSIGN_OR_RETURN(UserDirectory directory, UserDirectory::open(geteuid()));
  ASSIGN_OR_RETURN(Fd listener, directory.claim(name));
  return std::unique_ptr<SessionServer>(
      new SessionServer(std::make_unique<State>(name, std::move(directory), std::move(listener))));
}

SessionServer::~SessionServer() {
  state_->leaving = true;
  eventfd_write(state_->woken.get(), 1);
  if (state_->thread.joinable()) state_->thread.join();
  state_->listener = Fd();
  state_->directory.forget(state_->name);
}

const std::string& SessionServer::name() const { return state_->name; }

Result<void> SessionServer::serve(SessionHandlers handlers) {
  state_->handlers = std::move(handlers);
  TRY(state_->prepare());
  // Signals to redrive are meant for the thread that waits for them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

void SessionServer::complete(Result<int> exit_status) {
  state_->exit_status = std::move(exit_status);
  state_->is_complete = true;
  eventfd_write(state_->woken.get(), 1);
}

Result<void> SessionServer::State::prepare() {
  const Systemd& sd = systemd();
  sd_event* made = nullptr;
  TRY(check_systemd(sd.event_new(&made), "cannot make an event loop"));
  loop.reset(made);
  const auto accept = [](sd_event_source*, int, uint32_t, void* self) {
    of(self).accept_all();
    return 0;
  };
  const auto woken_up = [](sd_event_source*, int, uint32_t, void* self) {
    State& state = of(self);
    eventfd_t times = 0;
    eventfd_read(state.woken.get(), &times);
    if (state.is_complete) state.answer_stops();
    if (state.leaving) systemd().event_exit(state.loop.get(), 0);
    return 0;
  };
  sd_event_source* source = nullptr;
  TRY(check_systemd(sd.event_add_io(made, &source, listener.get(), EPOLLIN, accept, this), "cannot wait for clients"));
  accepting.reset(source);
  return check_systemd(sd.event_add_io(made, nullptr, woken.get(), EPOLLIN, woken_up, this), "cannot wait");
}

void SessionServer::State::run() {
  pthread_setname_np(pthread_self(), kThreadName);
  systemd().event_loop(loop.get());
  stops.clear();
  for (const Bus& connection : connections) {
    if (systemd().bus_is_ready(connection.get()) > 0) systemd().bus_flush(connection.get());
  }
  connections.clear();
  timers.clear();
  accepting.reset();
}

void SessionServer::State::accept_all() {
  for (;;) {
    Fd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection) return;
    if (may_ask(connection.get())) add(connection);
  }
}

// A connection that cannot be served is closed.
void SessionServer::State::add(const Fd& connection) {
  const Systemd& sd = systemd();
  sd_bus* made = nullptr;
  if (sd.bus_new(&made) < 0) return;
  Bus bus(made);
  const int owned = fcntl(connection.get(), F_DUPFD_CLOEXEC, 3);  // by the bus
  if (owned < 0 || sd.bus_set_fd(made, owned, owned) < 0) return;
  const auto gone = [](sd_bus_message* message, void* self, sd_bus_error*) {
    sd_bus* const closed = systemd().bus_message_get_bus(message);
    State& state = of(self);
    std::erase_if(state.stops,
                  [&](const BusMessage& call) { return systemd().bus_message_get_bus(call.get()) == closed; });
    std::erase_if(state.connections, [&](const Bus& each) { return each.get() == closed; });
    return 0;
  };
  const bool serves =
      sd.bus_set_server(made, 1, {}) >= 0 && sd.bus_start(made) >= 0 &&
      sd.bus_match_signal(made, nullptr, nullptr, "/org/freedesktop/DBus/Local", "org.freedesktop.DBus.Local",
                          "Disconnected", gone, this) >= 0 &&
      sd.bus_add_object_vtable(made, nullptr, kSessionPath, kSessionInterface, interface(), this) >= 0 &&
      sd.bus_attach_event(made, loop.get(), 0) >= 0;
  if (serves) connections.push_back(std::move(bus));
}

const sd_bus_vtable* SessionServer::State::interface() {
  static const auto kInterface = session_interface({
      [](sd_bus_message* call, void* self, sd_bus_error*) { return answer_with(call, of(self).handlers.status()); },
      [](sd_bus_message* call, void* self, sd_bus_error*) { return answer_with(call, of(self).handlers.activity()); },
      [](sd_bus_message* call, void* self, sd_bus_error*) { return answer_with(call, of(self).handlers.checkpoint()); },
      [](sd_bus_message* call, void* self, sd_bus_error*) { return answer_with(call, of(self).handlers.cut_window()); },
      [](sd_bus_message* call, void* self, sd_bus_error*) { return set(call, "a bound", of(self).handlers.set_bound); },
      [](sd_bus_message* call, void* self, sd_bus_error*) { return set(call, "a window", of(self).handlers.set_keep); },
      [](sd_bus_message* call, void* self, sd_bus_error*) { return of(self).stop(call); },
  });
  return kInterface.data();
}

int SessionServer::State::set(sd_bus_message* call, const char* what,
                              const std::function<Result<void>(double)>& handler) {
  double seconds = 0;
  if (const int got = systemd().bus_message_read_basic(call, 'd', &seconds); got < 0) return got;
  if (!(seconds > 0 && seconds <= kLongestDuration_s)) {
    return answer_error(
        call, Error{fmt::format("{} must be longer than 0 s, and at most {:.0f} s", what, kLongestDuration_s)});
  }
  if (const auto done = handler(seconds); !done) return answer_error(call, done.error());
  return answer(call, [](sd_bus_message*) { return Result<void>(); });
}

int SessionServer::State::stop(sd_bus_message* call) {
  uint64_t patience_us = 0;
  if (const int got = systemd().bus_message_read_basic(call, 't', &patience_us); got < 0) return got;
  stops.emplace_back(systemd().bus_message_ref(call));
  if (is_complete) {
    answer_stops();
    return 1;
  }
  const auto impatient = [](sd_event_source*, uint64_t, void* self) {
    of(self).handlers.kill();
    return 0;
  };
  if (patience_us < kLongestPatience_us) {
    sd_event_source* timer = nullptr;
    const int made =
        systemd().event_add_time_relative(loop.get(), &timer, CLOCK_MONOTONIC, patience_us, 0, impatient, this);
    if (made < 0) return made;
    timers.emplace_back(timer);
  }
  if (!std::exchange(ending, true)) handlers.end();
  return 1;
}

void SessionServer::State::answer_stops() {
  if (stops.empty()) return;
  // Whoever has waited for the end may use the name again.
  accepting.reset();
  listener = Fd();
  directory.forget(name);
  for (const BusMessage& call : std::exchange(stops, {})) {
    if (!exit_status) {
      answer_error(call.get(), exit_status.error());
      continue;
    }
    const int32_t status = *exit_status;
    answer(call.get(), [status](sd_bus_message* message) {
      return check_systemd(systemd().bus_message_append_basic(message, 'i', &status), "cannot answer");
    });
  }
}

}  // namespace redrive
