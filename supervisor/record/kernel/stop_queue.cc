#include "supervisor/record/kernel/stop_queue.h"

#include <algorithm>

namespace redrive {
namespace {

// Whether the stop also concerns a thread other than the one that has stopped.
bool names_another(const Stop& stop) {
  if (const auto* birth = std::get_if<Birth>(&stop)) return birth->child != 0;
  const auto* exec = std::get_if<Exec>(&stop);
  return exec && exec->former_tid != 0;
}

}  // namespace

bool StopQueue::fill() {
  if (!stops_.empty()) return true;
  Waited waited = tracer_.wait_for_any();
  if (std::holds_alternative<NoTracees>(waited)) return false;
  for (; const auto* next = std::get_if<Stopped>(&waited); waited = tracer_.take_any()) {
    // It was killed while it was stopped, perhaps by an exec that has taken over its number.
    std::erase_if(stops_, [&](const Stopped& was) { return was.tid == next->tid && !names_another(was.stop); });
    stops_.push_back(*next);
  }
  return true;
}

std::optional<Stopped> StopQueue::take() {
  if (stops_.empty()) return {};
  const Stopped next = stops_.front();
  stops_.pop_front();
  return next;
}

bool StopQueue::holds(pid_t tid) const {
  return std::any_of(stops_.begin(), stops_.end(), [&](const Stopped& stopped) { return stopped.tid == tid; });
}

int StopQueue::signal_of(pid_t tid) const {
  for (const Stopped& stopped : stops_) {
    const auto* const signalled = std::get_if<SignalStop>(&stopped.stop);
    if (signalled && stopped.tid == tid) return signalled->signal;
  }
  return 0;
}

void StopQueue::forget(pid_t tid) {
  std::erase_if(stops_, [&](const Stopped& stopped) { return stopped.tid == tid; });
}

void StopQueue::await(pid_t tid) {
  if (holds(tid)) return;
  if (const auto stop = tracer_.wait(tid)) stops_.push_back({tid, *stop});
}

}  // namespace redrive
