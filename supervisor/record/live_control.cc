#include "supervisor/record/live_control.h"

#include <signal.h>

#include <optional>
#include <thread>

#include "logstore/policy/policy.h"
#include "logstore/trace.h"
#include "supervisor/record/messages/messages.h"
#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/record/window.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr int kLooks = 100;  // for checkpoints that were asked for
constexpr auto kBetweenLooks = 10ms;

Error keeps_all() { return Error{"this session keeps everything; start it with --keep to have a window"}; }

}  // namespace

Result<void> LiveControl::ask(const std::function<void()>& request) {
  if (requests_.ask(request)) return {};
  return Error{"the program has ended"};
}

// For what needs a trace that is still written.
Result<void> LiveControl::ask_writer(const std::function<void()>& request) {
  Result<void> written;
  const auto asked = ask([&] {
    written = writer_.write_behind();
    if (!written) return;
    request();
    written = writer_.write_behind();
  });
  if (!asked) written = written_;
  if (!written) return Error{written.error().message + "; recording has stopped"};
  return asked;
}

void LiveControl::close() {
  written_ = writer_.write_behind();
  requests_.close();
}

Result<LiveControl::State> LiveControl::state() {
  State now;
  TRY(ask([&]() REQUIRES(recorded) {
    now.program = ends_.root();
    now.writes = static_cast<bool>(writer_.write_behind());
    for (const auto& [id, unit] : tracees_.units()) {
      if (unit->processes.empty()) continue;
      const Process& first = *unit->processes.front();
      now.units.push_back({id, first.command, first.pid, static_cast<uint32_t>(unit->processes.size()), unit->interval,
                           unit->log.next(), unit->served_calls, unit->stopped_calls});
    }
    if (const Talks* talks = messages_.talks()) now.talks = talks->all();
  }));
  return now;
}

Result<LiveControl::Taken> LiveControl::checkpoint() {
  Begun before;
  TRY(ask_writer([&]() REQUIRES(recorded) {
    for (const auto& [id, unit] : tracees_.units()) {
      if (!unit->in_interval || unit->processes.empty()) continue;
      before[id] = unit->interval;
      checkpointer_.request(*unit);
    }
  }));
  Taken taken;
  for (int look = 0; look < kLooks; ++look) {
    TRY(ask_writer([&]() REQUIRES(recorded) { taken = look_for_new(before); }));
    if (taken.pending == 0) break;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return taken;
}

Result<void> LiveControl::set_limits(const Settings& settings, double restore_budget_s) {
  const uint64_t period_ns = nanoseconds(settings.checkpoint_period_s);
  bool changed = false;
  TRY(ask_writer([&]() REQUIRES(recorded) {
    changed = policy_.set_limits(nanoseconds(settings.critical_path_s), period_ns);
    if (!changed) return;
    if (window_.exists()) window_.cut(&settings);
    limits_.checkpoint_period_ns = period_ns;
    limits_.restore_budget_s = restore_budget_s;
    for (const auto& [id, unit] : tracees_.units()) checkpointer_.request(*unit);
  }));
  if (!changed) return Error{"its policy cannot change while it is being recorded"};
  return {};
}

Result<uint32_t> LiveControl::cut_window() {
  std::optional<TraceWriter::VolumeNumber> begun;
  TRY(ask_writer([&]() REQUIRES(recorded) {
    if (window_.exists()) begun = window_.cut();
  }));
  if (!begun) return keeps_all();
  size_t behind = 0;
  for (int look = 0; look < kLooks; ++look) {
    bool complete = false;
    TRY(ask_writer([&]() REQUIRES(recorded) {
      complete = window_.complete(*begun);
      behind = window_.units_before(*begun);
    }));
    if (complete) return uint32_t{0};
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return static_cast<uint32_t>(behind);
}

Result<void> LiveControl::set_keep(uint64_t keep_ns) {
  bool has_window = false;
  TRY(ask_writer([&]() REQUIRES(recorded) {
    has_window = window_.exists();
    if (has_window) limits_.keep_ns = keep_ns;
  }));
  return has_window ? Result<void>() : keeps_all();
}

// Units that have ended meanwhile count as neither.
LiveControl::Taken LiveControl::look_for_new(const Begun& before) {
  Taken taken;
  for (const auto& [id, interval] : before) {
    Unit* const unit = tracees_.find_unit(id);
    if (!unit || unit->processes.empty()) continue;
    ++(unit->interval != interval ? taken.taken : taken.pending);
    if (unit->interval == interval) checkpointer_.request(*unit);
  }
  return taken;
}

Result<void> LiveControl::end_program() {
  return ask([this] {
    stopped_ = true;
    if (!limits_.attached) pass_on(SIGTERM);
  });
}

Result<void> LiveControl::kill_all() {
  return ask([this] {
    stopped_ = true;
    killing_ = !limits_.attached;
    go_on_killing();
  });
}

void LiveControl::count_talks() { messages_.count_talks(); }

void LiveControl::go_on_killing() {
  if (!killing_) return;
  for (const pid_t process : processes()) tracer_.send(process, SIGKILL);
}

void LiveControl::pass_on(int signal) {
  std::set<pid_t> to = processes();
  if (to.contains(ends_.root())) to = {ends_.root()};
  for (const pid_t process : to) tracer_.send(process, signal);
}

std::set<pid_t> LiveControl::processes() const {
  std::set<pid_t> found;
  for (const auto& [tid, thread] : tracees_.threads()) found.insert(thread->process->pid);
  return found;
}

}  // namespace redrive
