#include "supervisor/record/kernel/held_signals.h"

#include <algorithm>
#include <utility>

namespace redrive {
namespace {

// What is sent in place of a signal to a thread that blocks these. SIGCONT itself would make the process continue, and
// take back a stop that came after it (signal(7)). It is sent only where all real-time signals are blocked; those that
// the C library keeps for itself never are in its programs.
int carrier_of(int signal, uint64_t blocked) {
  if (signal != SIGCONT) return signal;
  int carrier = kLastRealTime;
  while (carrier >= kFirstRealTime && (blocked & bit_of(carrier))) --carrier;
  return carrier >= kFirstRealTime ? carrier : SIGCONT;
}

// Whether the kernel would keep one of the two, if both were pending.
bool are_kept_as_one(const siginfo_t& a, const siginfo_t& b) {
  if (a.si_signo != b.si_signo) return false;
  const bool timers = a.si_code == SI_TIMER && b.si_code == SI_TIMER;
  return a.si_signo < kFirstRealTime || (timers && a.si_timerid == b.si_timerid);
}

}  // namespace

uint64_t block_signals(Tracer& tracer, pid_t tid) {
  uint64_t own = 0;
  if (tracer.get_signal_mask(tid, own)) tracer.set_signal_mask(tid, own | ~kCausedByInstructions);
  return own;
}

bool HeldSignals::overtakes(const siginfo_t& info) const {
  const auto is_before = [&](const siginfo_t& other) { return other.si_signo == info.si_signo && is_queued(other); };
  const auto was_before = [&](const Raised& raised) { return is_before(raised.info); };
  return is_queued(info) && (std::any_of(held_.begin(), held_.end(), is_before) ||
                             std::any_of(raised_.begin(), raised_.end(), was_before));
}

void HeldSignals::hold(const siginfo_t& info, Clock::time_point now) {
  const auto held = [&](const siginfo_t& other) { return are_kept_as_one(info, other); };
  if (std::any_of(held_.begin(), held_.end(), held)) return;
  if (held_.empty()) since_ = now;
  held_.push_back(info);
}

bool HeldSignals::raise(Tracer& tracer, pid_t pid, pid_t tid, const SignalTurns& turns) {
  const auto may_come = [&](const siginfo_t& info) { return !turns.must_wait(info); };
  auto next = std::find_if(held_.begin(), held_.end(), may_come);
  if (next == held_.end()) return false;
  forget_taken(tracer, tid);
  uint64_t blocked = 0;
  tracer.get_signal_mask(tid, blocked);
  for (; next != held_.end(); next = std::find_if(held_.begin(), held_.end(), may_come)) {
    const siginfo_t info = *next;
    held_.erase(next);
    const bool pending = std::any_of(raised_.begin(), raised_.end(),
                                     [&](const Raised& raised) { return raised.info.si_signo == info.si_signo; });
    if (pending && info.si_signo < kFirstRealTime) continue;  // the kernel keeps one of each
    // SIGCONT came, and has taken back the stop (signal(7)).
    if (stops_the_group(info.si_signo) && (tracer.signal_masks(tid).pending & bit_of(SIGCONT))) continue;
    if (send(tracer, pid, tid, info, blocked) && !(blocked & bit_of(raised_.back().carrier))) return true;
  }
  return false;
}

bool HeldSignals::raise(Tracer& tracer, pid_t pid, pid_t tid, const siginfo_t& info) {
  forget_taken(tracer, tid);
  uint64_t blocked = 0;
  tracer.get_signal_mask(tid, blocked);
  return send(tracer, pid, tid, info, blocked);
}

bool HeldSignals::send(Tracer& tracer, pid_t pid, pid_t tid, const siginfo_t& info, uint64_t blocked) {
  const int carrier = carrier_of(info.si_signo, blocked);
  if (!tracer.send(pid, tid, carrier)) return false;
  raised_.push_back({info, carrier});
  return true;
}

void HeldSignals::forget_taken(Tracer& tracer, pid_t tid) {
  if (raised_.empty()) return;
  const uint64_t pending = tracer.signal_masks(tid).pending;
  std::erase_if(raised_, [&](const Raised& raised) { return !(pending & bit_of(raised.carrier)); });
}

std::optional<siginfo_t> HeldSignals::arrived(int signal) {
  const auto was =
      std::find_if(raised_.begin(), raised_.end(), [&](const Raised& raised) { return raised.carrier == signal; });
  if (was == raised_.end()) return {};
  const siginfo_t info = was->info;
  raised_.erase(was);
  return info;
}

void HeldSignals::keep_off(Tracer& tracer, pid_t tid, int ignored) { block(tracer, tid, to_keep(ignored)); }

void HeldSignals::keep_off_up_to_trap(Tracer& tracer, pid_t tid) { block(tracer, tid, to_keep(0), bit_of(SIGTRAP)); }

uint64_t HeldSignals::to_keep(int ignored) {
  uint64_t kept = ignored ? bit_of(ignored) : 0, to_come = kCausedByInstructions;
  for (const siginfo_t& info : held_) {
    (stops_the_group(info.si_signo) || is_queued(info) ? to_come : kept) |= bit_of(info.si_signo);
  }
  for (const Raised& raised : raised_) to_come |= bit_of(raised.carrier);
  kept_ = kept & ~to_come;
  return kept_;
}

std::optional<uint64_t> HeldSignals::keep_off_birth(Tracer& tracer, pid_t tid) {
  block(tracer, tid, kept_);
  return mask_;
}

void HeldSignals::block(Tracer& tracer, pid_t tid, uint64_t signals, uint64_t unblocked) {
  uint64_t own = 0;
  if ((signals | unblocked) == 0 || !tracer.get_signal_mask(tid, own)) return;
  if (signals == 0 && (own & unblocked) == 0) return;
  if (!mask_) mask_ = own;
  tracer.set_signal_mask(tid, (own | signals) & ~unblocked);
}

void HeldSignals::let_come(Tracer& tracer, pid_t tid) {
  if (mask_ && tracer.set_signal_mask(tid, *mask_)) mask_.reset();
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
