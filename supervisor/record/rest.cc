#include "supervisor/record/rest.h"

#include <algorithm>

#include "supervisor/record/checkpoints/image_worker.h"
#include "supervisor/record/checkpoints/intervals.h"
#include "supervisor/record/front/interrupts.h"
#include "supervisor/record/stops/gate_stops.h"
#include "supervisor/record/tracees/tracees.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kLittle_ns = 1'000'000;  // of CPU time, of all units, between two ticks
constexpr auto kUse = 3ms;                  // of CPU time, of one process: the rest ends
// A rest that a process ends sooner has not paid. Programs that have rested for long will do so again.
constexpr auto kLong = 50ms;
constexpr int kQuiet = 2;  // ticks in a row, if the last rest was not long

// A unit whose checkpoint is due this soon may pass that time before the kernel interrupts the rest.
constexpr auto kSoon_ns = static_cast<uint64_t>(std::chrono::nanoseconds(3 * kTick).count());

// By then, the events of all calls before the rest are made, and can be written.
constexpr Clock::duration kFirstTick = 250ms;

}  // namespace

uint64_t Rest::cpu_ns() const {
  uint64_t sum = 0;
  for (const auto& [id, unit] : tracees_.units()) sum += unit->clock.cpu_ns();
  return sum;
}

bool Rest::stores_images() const { return !images_.is_idle() || images_.copies_alive().count > 0; }

bool Rest::wakes_when_used(const Unit& unit) {
  return std::all_of(unit.processes.begin(), unit.processes.end(), [&](const auto& process) {
    if (watched_.contains(process->pid)) return true;
    return tracer_.wake_when_used(process->pid, kUse) && watched_.insert(process->pid).second;
  });
}

// Whether nothing is to be done for the unit before it has used CPU time or stops.
bool Rest::can_rest(Unit& unit) {
  if (unit.checkpoint_wanted || unit.checkpoint_requested) return false;
  const auto ends_soon = [by = tracer_.now() + kLongestTick](const auto& entry) {
    return entry.second->call.timeout.is_over(by);
  };
  if (std::any_of(unit.threads.begin(), unit.threads.end(), ends_soon)) return false;
  if (unit.joins || !unit.joining.empty() || !unit.writers.empty() || unit.baton.is_awaited()) return false;
  Thread* const holder = unit.baton.holder();
  if (!holder) return true;
  if (!holder->signals.empty()) return false;
  if (!holder->is<Thread::User>() || intervals_.until_due_ns(unit) > kSoon_ns) return wakes_when_used(unit);
  // It may only sleep, until it stops.
  gate_stops_.take_from_sleeper(unit);
  return !unit.baton.is_held();
}

std::optional<Clock::duration> Rest::go_on(Clock::time_point now, Clock::duration longest_tick) {
  watched_.clear();
  const uint64_t used_ns = cpu_ns();
  const bool little = used_ns >= used_ns_ && used_ns - used_ns_ <= kLittle_ns;
  used_ns_ = used_ns;
  quiet_ = little ? quiet_ + 1 : 0;
  const bool quiet = rests() || quiet_ >= (was_long_ ? 1 : kQuiet);
  const auto can_all_rest = [&]() REQUIRES(recorded) {
    return std::all_of(tracees_.units().begin(), tracees_.units().end(),
                       [&](const auto& each) REQUIRES(recorded) { return can_rest(*each.second); });
  };
  if (!quiet || stores_images() || !can_all_rest()) {
    end(now);
    return {};
  }
  if (since_) return longest_tick;
  since_ = now;
  return kFirstTick;
}

bool Rest::outlasts_stop(pid_t tid) {
  const Thread* const thread = tracees_.find(tid);
  return thread && !stores_images() && can_rest(*thread->process->unit);
}

void Rest::end(Clock::time_point now) {
  if (since_) was_long_ = now - *since_ >= kLong;
  since_.reset();
}

}  // namespace redrive
