#include "supervisor/record/rest.h"

#include <algorithm>

#include "supervisor/record/checkpoints/image_worker.h"
#include "supervisor/record/stops/gate_stops.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

// A thread whose baton is taken from it in its sleep stops when it wakes up. To save a tick is worth that; programs
// that wake up every few milliseconds have events between two ticks. Those that slept for long will do so again.
constexpr auto kLong = 50ms;
constexpr int kQuiet = 1;  // ticks without events, if the last rest was not long

// By then, the events of all calls before the rest are made, and can be written.
constexpr Clock::duration kFirstTick = 250ms;

bool is_in_served_call(const Thread& thread) { return thread.is<Thread::User>() && thread.process->gate; }

// No thread of the unit runs before it has stopped, and none is about to.
bool sleeps(const Unit& unit) {
  if (unit.checkpoint_wanted || unit.checkpoint_requested || unit.joins || unit.baton.is_awaited()) return false;
  const Thread* const holder = unit.baton.holder();
  if (!holder || holder->is<Thread::Syscall>()) return true;
  const gate::Slot* const slot = is_in_served_call(*holder) ? slot_of(*holder) : nullptr;
  return slot && read_once(slot->asleep) != 0;
}

}  // namespace

bool Rest::all_sleep() const {
  return std::all_of(tracees_.units().begin(), tracees_.units().end(),
                     [](const auto& each) { return sleeps(*each.second); });
}

// No thread can run on in its call without stopping first.
bool Rest::take_batons() {
  bool all = true;
  for (const auto& [id, unit] : tracees_.units()) {
    const Thread* const holder = unit->baton.holder();
    if (!holder || holder->is<Thread::Syscall>()) continue;
    gate_stops_.take_from_sleeper(*unit);
    all &= !unit->baton.is_held();
  }
  return all;
}

std::optional<Clock::duration> Rest::go_on(Clock::time_point now, Clock::duration longest_tick) {
  const uint64_t events = tracees_.events();
  quiet_ = events == events_ ? quiet_ + 1 : 0;
  events_ = events;
  const bool quiet = quiet_ >= (was_long_ ? 0 : kQuiet) && images_.is_idle() && images_.copies_alive() == 0;
  if (!quiet || !all_sleep() || !take_batons()) {
    end(now);
    return {};
  }
  events_ = tracees_.events();  // their calls became events
  if (since_) return longest_tick;
  since_ = now;
  return kFirstTick;
}

void Rest::end(Clock::time_point now) {
  if (since_) was_long_ = now - *since_ >= kLong;
  since_.reset();
}

}  // namespace redrive
