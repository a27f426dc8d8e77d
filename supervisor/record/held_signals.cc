#include "supervisor/record/held_signals.h"

#include <algorithm>
#include <utility>

namespace redrive {
namespace {

// What is sent in place of a signal. To send SIGCONT would make the process go on, and take back a stop that came after
// it (signal(7)).
constexpr int kCarrier = 64;
constexpr int carrier_of(int signal) { return signal == SIGCONT ? kCarrier : signal; }

}  // namespace

void HeldSignals::hold(const siginfo_t& info, Clock::time_point now) {
  if (held_.empty()) since_ = now;
  held_.push_back(info);
}

bool HeldSignals::raise(Tracer& tracer, pid_t pid, pid_t tid) {
  if (held_.empty()) return false;
  uint64_t blocked = 0;
  tracer.get_signal_mask(tid, blocked);
  while (!held_.empty()) {
    const siginfo_t info = held_.front();
    held_.pop_front();
    const bool pending = std::any_of(raised_.begin(), raised_.end(),
                                     [&](const siginfo_t& raised) { return raised.si_signo == info.si_signo; });
    if (pending && info.si_signo < SIGRTMIN) continue;  // the kernel keeps one of each
    // SIGCONT came, and has taken back the stop (signal(7)).
    if (stops_the_group(info.si_signo) && (tracer.signal_masks(tid).pending & bit_of(SIGCONT))) continue;
    if (raise(tracer, pid, tid, info) && !(blocked & bit_of(carrier_of(info.si_signo)))) return true;
  }
  return false;
}

bool HeldSignals::raise(Tracer& tracer, pid_t pid, pid_t tid, const siginfo_t& info) {
  if (!tracer.send(pid, tid, carrier_of(info.si_signo))) return false;
  raised_.push_back(info);
  return true;
}

std::optional<siginfo_t> HeldSignals::arrived(int signal) {
  const auto was = std::find_if(raised_.begin(), raised_.end(),
                                [&](const siginfo_t& raised) { return carrier_of(raised.si_signo) == signal; });
  if (was == raised_.end()) return {};
  const siginfo_t info = *was;
  raised_.erase(was);
  return info;
}

void HeldSignals::forget_stops() {
  std::erase_if(held_, [](const siginfo_t& info) { return stops_the_group(info.si_signo); });
}

std::vector<siginfo_t> HeldSignals::take_for_process() {
  std::vector<siginfo_t> taken;
  for (const auto& info : std::exchange(held_, {})) {
    if (info.si_code != SI_TKILL) taken.push_back(info);
  }
  return taken;
}

void HeldSignals::forget_all() {
  held_.clear();
  raised_.clear();
}

}  // namespace redrive
