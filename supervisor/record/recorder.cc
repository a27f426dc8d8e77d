#include "supervisor/record/recorder.h"

#include <sys/prctl.h>

#include <algorithm>

#include "base/notice.h"
#include "supervisor/record/front/front.h"
#include "supervisor/record/front/interrupts.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr auto kLeaving = 100ms;  // time for the others to end when the program has
constexpr auto kShortestTick = 1ms;
constexpr auto kCrowdedTick = 4ms;  // while several units compute
constexpr Clock::duration kLongestTickForTriggers = 250ms;
constexpr auto kShortestLook = 2ms;
constexpr int kLooksInPeriod = 50;  // at units' clocks in a checkpoint period, if there are not more ticks

}  // namespace

Recorder::Recorder(Tracer& tracer, TraceWriter& writer, Policy& policy, const RecorderLimits& limits,
                   std::unique_ptr<GateArena> arena, FileCache* cache)
    : tracer_(tracer),
      writer_(writer),
      limits_(limits),
      arena_(std::move(arena)),
      stops_(tracer),
      calls_(tracer, [this](pid_t tid) { return ends_.wait_stop(tid); }),
      tier_mapper_(tracer, calls_),
      placement_(limits.processors),
      processors_(placement_.seen(), limits.processors_seen),
      adapted_files_(processors_),
      messages_(writer, policy, limits.independent_checkpoints),
      images_(writer),
      event_clock_(tracer, writer, arena_.get()),
      triggers_(limits.triggers, event_clock_.now()),
      tracees_(tracer, writer, event_clock_.now()),
      findings_(writer),
      control_(tracer),
      intervals_(tracer, writer, limits_, messages_),
      files_(writer_, objects_, findings_),
      object_views_(objects_, tracees_),
      private_views_(objects_, arena_.get(), tracees_, findings_, object_views_),
      outside_(objects_, tracees_, findings_, object_views_),
      object_sharing_(writer_, objects_, arena_.get(), tracees_, findings_, events_, object_views_, private_views_,
                      outside_, files_, joiner_),
      patching_(cache, calls_, writer_, limits_, arena_.get(), answers_, tracees_, findings_, control_),
      native_(tracer_, calls_, limits_, tracees_, files_, patching_, ends_),
      packet_rings_(limits_, findings_, control_),
      layout_(objects_, arena_.get(), findings_, patching_, private_views_, object_sharing_, files_, packet_rings_),
      foreign_(tracer_, tracees_, findings_, control_, events_, ends_, handler_),
      capture_(tracer_, stops_, objects_, control_, private_views_, files_, page_buffers_),
      copies_(tracer_, stops_, calls_, images_, arena_.get(), tracees_, control_, ends_),
      checkpointer_(tracer_, writer_, limits_, messages_, images_, tracees_, findings_, control_, intervals_, capture_,
                    copies_),
      preempter_(tracer_, calls_, limits_, arena_.get(), findings_, control_, intervals_, capture_, copies_,
                 checkpointer_, signals_, steps_, turns_),
      steps_(tracer_, control_, forced_, ends_, handler_),
      handover_(tracer_, limits_, control_, steps_, turns_),
      loops_(tracer_, limits_, patching_, control_, served_, steps_, turns_),
      forced_(tracer_, calls_, findings_),
      woken_(tracer_, limits_, stops_, control_),
      traps_(tracer_, arena_.get(), answers_, control_, events_, patching_, signals_, forced_, turns_, stopped_calls_),
      signals_(tracer_, limits_, findings_, control_, intervals_, gate_stops_, traps_, forced_, copies_, ends_, turns_,
               handler_),
      events_(limits_, messages_, findings_, object_sharing_, outside_, layout_, foreign_, forced_, packet_rings_),
      gate_stops_(tracer_, messages_, arena_.get(), control_, served_, signals_, woken_, foreign_, loops_, turns_,
                  stopped_calls_),
      full_rings_(tracer_, messages_, arena_.get(), control_, checkpointer_, served_),
      joiner_(tracer_, writer_, intervals_, ends_, placer_, turns_),
      births_(tracer_, stops_, placement_, messages_, arena_.get(), tracees_, control_, intervals_, checkpointer_,
              object_views_, programs_, ends_, turns_, handler_),
      programs_(tracer_, calls_, tier_mapper_, limits_, placement_, arena_.get(), tracees_, findings_, control_,
                intervals_, checkpointer_, served_, patching_, forced_, native_, placer_, turns_),
      ends_(tracer_, stops_, writer_, triggers_, tracees_, findings_, control_, intervals_, checkpointer_, events_,
            private_views_, outside_, foreign_, gate_stops_, signals_, joiner_, turns_),
      placer_(tracer_, placement_, processors_, tracees_),
      traced_(limits_, tracees_, findings_, control_, capture_, events_),
      adapted_(calls_, adapted_files_, tracees_, findings_, control_),
      locks_(tracer_),
      confined_(tracer_, findings_, control_, events_, signals_, ends_, stopped_calls_),
      turns_(tracer_, control_, checkpointer_, gate_stops_, foreign_, preempter_, joiner_, births_, stopped_calls_),
      attacher_(tracer_, writer_, stops_, calls_, placement_, page_buffers_, images_, objects_, tracees_, findings_,
                control_, intervals_, files_, private_views_, outside_, capture_, copies_, checkpointer_, native_,
                ends_, turns_, handler_),
      stopped_calls_(tracer_, limits_, objects_, findings_, control_, intervals_, copies_, checkpointer_, events_,
                     private_views_, object_sharing_, layout_, foreign_, signals_, forced_, woken_, joiner_, births_,
                     ends_, placer_, traced_, adapted_, packet_rings_, locks_, confined_, native_, handover_, turns_),
      handler_(tracer_, arena_.get(), tracees_, control_, copies_, checkpointer_, served_, full_rings_, gate_stops_,
               patching_, outside_, signals_, traps_, preempter_, loops_, births_, programs_, ends_, turns_,
               stopped_calls_, woken_),
      window_(tracer_, writer_, limits_, messages_, images_, tracees_, checkpointer_),
      rest_(tracer, tracees_, images_, intervals_, gate_stops_),
      live_(tracer_, writer_, policy, limits_, messages_, tracees_, checkpointer_, ends_, window_),
      served_(limits_, arena_.get(), event_clock_, answers_, findings_, events_, files_, traps_) {}

Result<void> Recorder::launch(const std::string& path, const std::vector<std::string>& arguments,
                              const Launcher::Filter& filter) {
  placement_.stay_home();
  ASSIGN_OR_RETURN(Launcher launcher, Launcher::fork(path, arguments, filter));
  const pid_t pid = launcher.pid();
  if (const auto seized = tracer_.seize(pid); !seized) {
    tracer_.send(pid, SIGKILL);
    tracer_.wait(pid);
    return seized.error();
  }
  adopt(pid, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
  TRY(launcher.go());
  close_inherited();
  return {};
}

Result<void> Recorder::attach(pid_t pid) {
  const TakenBack taken_back(served_);
  return attacher_.attach(pid);
}

void Recorder::adopt(pid_t pid, bool no_new_privs) {
  ends_.set_root(pid);
  Unit& unit = tracees_.add_unit({}, pid);
  Thread& thread = tracees_.add_thread(tracees_.add_process(unit, pid), pid, std::make_shared<FdCache>());
  thread.confinement = Confinement(no_new_privs);
  thread.processors = processors_.all();
  unit.baton.give_to(thread);
}

RecordingEnd Recorder::run(const Tell& tell) {
  {
    const TakenBack taken_back(served_);
    if (triggers_.exist()) messages_.watch_replies(triggers_);
    if (triggers_.watch_writes()) events_.watch_writes(triggers_);
  }
  const auto started = tracer_.now();
  bool told = false;
  next_tick_ = next_look_ = started + kTick;
  if (limits_.attached_for_s > 0) {
    const std::chrono::duration<double> attached_for(limits_.attached_for_s);
    lets_go_at_ = started + std::chrono::duration_cast<Clock::duration>(attached_for);
  }
  while (!tracees_.threads().empty()) {
    if (!stops_.fill()) break;
    const auto now = event_clock_.saw_stop();
    const auto next = stops_.take();
    if (next) handler_.handle(*next);
    if (rest_.rests() && !rest_outlasts(next, now)) end_rest(now);
    for (const int signal : take_interrupts()) {
      if (!triggers_.takes_signal(signal, since_boot_ns(now))) take_signal(signal);
    }
    if (limits_.attached && is_to_let_go(now) && attacher_.can_stop()) break;
    if (const auto happened = triggers_.take()) tell.triggered(*happened);
    if (live_.is_asked()) {
      const TakenBack taken_back(served_);
      served_.drain();
      live_.carry_out();
    }
    if (now >= next_tick_) {
      tick();
    } else if (now >= next_look_) {
      look_at_clocks();
    }
    const auto program_ended = ends_.root_ended();
    if (program_ended && !told && !tracees_.threads().empty() && tracer_.now() - *program_ended > kLeaving) {
      told = true;
      tell.left_behind(ends_.left_behind());
    }
  }
  live_.close();
  {
    const TakenBack taken_back(served_);
    end_all();
  }
  RecordingEnd end = end_of_recording();
  end.wall_s = std::chrono::duration<double>(tracer_.now() - started).count();
  return end;
}

// Programs that were attached to get their signals by themselves.
void Recorder::take_signal(int signal) {
  if (!limits_.attached) {
    live_.pass_on(signal);
  } else {
    lets_go_ |= signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
  }
}

// Whether the programs that were attached to are to run on by themselves.
bool Recorder::is_to_let_go(Clock::time_point now) {
  lets_go_ |= now >= lets_go_at_;
  return lets_go_ |= live_.was_stopped();
}

// Ends what is still recorded when the loop has ended.
void Recorder::end_all() {
  if (limits_.attached) attacher_.stop_all();
  served_.drain();
  end_units();
  if (limits_.attached) attacher_.let_go();
  images_.close();
  copies_.collect();
  messages_.write_channels();
  patching_.keep();
}

void Recorder::end_units() {
  for (const auto& [id, unit] : tracees_.units()) {
    unit->log.flush();
    intervals_.end(*unit);
    events_.end_messages(*unit);
    findings_.add_calls(*unit);
  }
}

RecordingEnd Recorder::end_of_recording() const {
  const TraceeEnd program = ends_.root_end();
  RecordingEnd end;
  end.exit_status = program.shell_status();
  const bool interrupted = program.killed() && times_interrupted_by(program.signal) > 0;
  end.reason = limits_.attached && !ends_.root_ended() ? kLetGo
               : live_.was_stopped()                   ? "stopped"
               : interrupted                           ? "interrupted"
               : program.killed()                      ? "killed by a signal"
                                                       : "exited";
  end.skipped_checkpoints = copies_.skipped();
  end.criu_images = images_.criu_images();
  return end;
}

// A full disk ends the trace, not the program.
void Recorder::flush() {
  const auto flushed = writer_.write_behind();
  if (flushed || std::exchange(write_failed_, true)) return;
  notice("{}; recording has stopped; the program continues", flushed.error().message);
}

// The next tick comes when a unit may have to be asked or stopped for a checkpoint. A unit's threads run one at a time,
// so it does not get there before that much time has passed; but served calls let its clock run faster. What decisions
// here rest on may be as old as the last tick: events of what was served since are made while the programs continue.
void Recorder::tick() {
  std::chrono::nanoseconds next{};
  std::optional<Clock::duration> resting_tick;
  {
    const TakenBack taken_back(served_);
    next = look_at_all();
    resting_tick = rest_.go_on(tracer_.now(), longest_tick());
  }
  if (served_.has_maker()) served_.make_events_behind();
  if (placer_.crowded()) next = std::min<std::chrono::nanoseconds>(next, kCrowdedTick);
  next = std::max<std::chrono::nanoseconds>(next, kShortestTick);
  const auto now = tracer_.now();
  next_tick_ = now + resting_tick.value_or(next);
  next_look_ = resting_tick ? next_tick_ : now + look_period();
  wake_for_next();
}

// Returns when to look again.
std::chrono::nanoseconds Recorder::look_at_all() {
  served_.settle();
  live_.go_on_killing();
  copies_.collect();
  object_sharing_.forget_unmapped();
  outside_.look_for_writers();
  messages_.write_channels();
  checkpointer_.ask_at_each_event();
  auto next = std::chrono::nanoseconds(kTick);
  for (const auto& [id, unit] : tracees_.units()) next = std::min(next, look_at(*unit));
  placer_.place_units();
  window_.look();
  if (triggers_.exist()) triggers_.look(since_boot_ns(tracer_.now()));
  flush();
  return next;
}

Clock::duration Recorder::longest_tick() const {
  const Clock::duration longest = triggers_.exist() ? kLongestTickForTriggers : kLongestTick;
  return std::clamp<Clock::duration>(lets_go_at_ - tracer_.now(), kTick, longest);
}

// Without a stop, something has been used, or somebody has asked.
bool Recorder::rest_outlasts(const std::optional<Stopped>& stop, Clock::time_point now) {
  if (!stop) return now >= next_tick_;
  const TakenBack taken_back(served_);
  served_.settle();
  return rest_.outlasts_stop(stop->tid);
}

// Something is done again: units are looked at now.
void Recorder::end_rest(Clock::time_point now) {
  rest_.end(now);
  next_tick_ = next_look_ = now;
}

// Units' clocks are read more often if periods are short, so that times of messages are right within a small part of a
// period.
std::chrono::nanoseconds Recorder::look_period() const {
  if (limits_.checkpoint_period_ns == 0) return kTick;
  return std::clamp<std::chrono::nanoseconds>(std::chrono::nanoseconds(limits_.checkpoint_period_ns / kLooksInPeriod),
                                              kShortestLook, kTick);
}

void Recorder::look_at_clocks() {
  const bool rests = !served_.look_at_clocks();
  next_look_ = rests ? next_tick_ : tracer_.now() + look_period();
  wake_for_next();
}

void Recorder::wake_for_next() {
  const auto left = std::min(next_tick_, next_look_) - tracer_.now();
  tracer_.wake_within(std::max(std::chrono::duration_cast<std::chrono::microseconds>(left), 1us));
}

// Asks or stops the unit for a checkpoint, or for others of its threads, if that is due. Returns when to look again.
std::chrono::nanoseconds Recorder::look_at(Unit& unit) {
  checkpointer_.wake(unit);
  woken_.end_late(unit);
  turns_.stop_keeping(unit);
  Thread* const holder = unit.baton.holder();
  if (!holder || !holder->is<Thread::User>()) return kTick;
  gate_stops_.note_sleep(*holder);
  const bool checkpoint = checkpointer_.is_due(unit);
  if (checkpoint) unit.last_clock_check = {};  // so that it is asked again at the next call
  preempter_.watch(unit, checkpoint);
  loops_.watch(unit);
  return std::min<std::chrono::nanoseconds>(kTick, std::chrono::nanoseconds(intervals_.until_due_ns(unit) / 3));
}

}  // namespace redrive
