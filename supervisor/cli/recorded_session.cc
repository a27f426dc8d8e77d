#include "supervisor/cli/recorded_session.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include "base/notice.h"
#include "base/units.h"
#include "supervisor/record/front/front.h"
#include "supervisor/service/drop_in.h"
#include "supervisor/session/session_client.h"

namespace redrive {
namespace {

Error has_ended() { return Error{"the program has ended; what is left is done for the trace"}; }

uint64_t monotonic_us() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

// The program's name: the first word of what the recorder keeps of a command, without its directory.
std::string name_of(const std::string& command) { return command.substr(0, command.find(' ')); }

}  // namespace

Result<std::unique_ptr<RecordedSession>> RecordedSession::claim(const std::string& name) {
  TRY(check_session_name(name));
  const auto uncontrolled = [](const Error& why) {
    notice("this recording cannot be controlled: {}", why.message);
    return std::unique_ptr<RecordedSession>();
  };
  const auto loaded = load_systemd();
  const auto directory = loaded ? own_directory() : Result<UserDirectory>(loaded.error());
  if (!directory) return uncontrolled(directory.error());
  auto server = SessionServer::claim(name);
  // What the last start of a service has left behind may still be recorded. It starts all the same.
  if (!server && std::getenv(kServiceVariable)) return uncontrolled(server.error());
  if (!server) return server.error();
  return std::unique_ptr<RecordedSession>(new RecordedSession(std::move(*server)));
}

Result<void> RecordedSession::begin(Recorder& recorder, SessionStatus status, SetBound set_bound) {
  recorder.live().count_talks();
  {
    const Lock lock(mutex_);
    recorder_ = &recorder;
    status_ = std::move(status);
    status_.name = server_->name();
    status_.user = geteuid();
    status_.recorder = static_cast<uint32_t>(getpid());
    status_.state = "recording";
  }
  set_bound_ = std::move(set_bound);
  SessionHandlers handlers;
  handlers.status = [this] { return this->status(); };
  handlers.activity = [this] { return activity(); };
  handlers.checkpoint = [this] { return checkpoint(); };
  handlers.cut_window = [this] { return cut_window(); };
  handlers.set_keep = [this](double keep_s) { return set_keep(keep_s); };
  handlers.set_bound = [this](double bound_s) -> Result<void> {
    const Lock lock(mutex_);
    if (!recorder_) return has_ended();
    return set_bound_(bound_s, status_);
  };
  handlers.end = [this] {
    const Lock lock(mutex_);
    if (!recorder_) return;
    status_.state = "stopping";
    static_cast<void>(static_cast<bool>(recorder_->live().end_program()));  // false: it has ended
  };
  handlers.kill = [this] {
    const Lock lock(mutex_);
    if (recorder_) static_cast<void>(static_cast<bool>(recorder_->live().kill_all()));
  };
  return server_->serve(std::move(handlers));
}

void RecordedSession::ended() {
  const Lock lock(mutex_);
  recorder_ = nullptr;
  status_.state = "finishing";
  status_.units = status_.processes = 0;
}

void RecordedSession::complete(int exit_status, const Result<void>& trace) {
  if (trace) {
    server_->complete(exit_status);
  } else {
    server_->complete(Error{fmt::format("session '{}' has ended with status {}, but {}", server_->name(), exit_status,
                                        trace.error().message)});
  }
}

Result<SessionStatus> RecordedSession::status() {
  const Lock lock(mutex_);
  status_.signals_to = has_front() ? static_cast<uint32_t>(front_process()) : status_.recorder;
  if (!recorder_) return status_;
  const auto now = recorder_->live().state();
  if (!now) return status_;
  if (!now->writes && status_.state == "recording") status_.state = "incomplete";
  status_.program = static_cast<uint32_t>(now->program);
  status_.units = static_cast<uint32_t>(now->units.size());
  status_.processes = 0;
  status_.events = 0;
  for (const auto& unit : now->units) {
    status_.processes += unit.processes;
    status_.events += unit.events;
  }
  return status_;
}

Result<SessionActivity> RecordedSession::activity() {
  const Lock lock(mutex_);
  if (!recorder_) return has_ended();
  ASSIGN_OR_RETURN(const LiveControl::State now, recorder_->live().state());
  SessionActivity activity;
  activity.at_us = monotonic_us();
  for (const auto& unit : now.units) {
    activity.units.push_back({unit.unit, name_of(unit.command), static_cast<uint32_t>(unit.pid), unit.interval,
                              unit.events, unit.served_calls, unit.stopped_calls});
  }
  for (const auto& talk : now.talks) activity.talks.push_back({talk.from, talk.to, talk.messages, talk.bytes});
  return activity;
}

Result<CheckpointsTaken> RecordedSession::checkpoint() {
  const Lock lock(mutex_);
  if (!recorder_) return has_ended();
  ASSIGN_OR_RETURN(const LiveControl::Taken taken, recorder_->live().checkpoint());
  return CheckpointsTaken{taken.taken, taken.pending};
}

Result<WindowCut> RecordedSession::cut_window() {
  const Lock lock(mutex_);
  if (!recorder_) return has_ended();
  ASSIGN_OR_RETURN(const uint32_t behind, recorder_->live().cut_window());
  return WindowCut{behind};
}

Result<void> RecordedSession::set_keep(double keep_s) {
  const Lock lock(mutex_);
  if (!recorder_) return has_ended();
  TRY(recorder_->live().set_keep(nanoseconds(keep_s)));
  status_.keep_s = keep_s;
  return {};
}

}  // namespace redrive
