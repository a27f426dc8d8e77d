#include "supervisor/record/kernel/event_clock.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr auto kLookPeriod = 1000us;
constexpr uint64_t kAdapted_ns = 2'000'000;  // how often it is decided who notes the time
// So many calls in this time cost as much, if each notes its time, as the looks that are needed otherwise.
constexpr uint64_t kManyCalls = 20, kOfTime_ns = 1'000'000;
constexpr uint64_t kFewFor_ns = 100'000'000;  // until then it may be a pause
constexpr int kIdleLooks = 100;               // without a call: nobody need look
constexpr uint64_t kWallClockChecked_ns = 10'000'000;
constexpr uint64_t kQuickRead_ns = 10'000;
constexpr int kTries = 5;

// Has the calling thread run soon after it wakes up, even if others use all processors: it runs briefly. Kernels before
// 6.12 do not do this (sched_setattr(2), EEVDF's slice).
void run_soon() {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
  } attributes{};
  attributes.size = sizeof attributes;
  attributes.policy = SCHED_OTHER;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  attributes.runtime_ns = 100'000;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

EventClock::EventClock(const Tracer& tracer, TraceWriter& writer, GateArena* arena)
    : tracer_(tracer), writer_(writer), arena_(arena) {
  saw_stop();
  end_served();
  if (!arena_) return;
  {
    const Lock lock(mutex_);
    last_ = adapted_ = {arena_->now(), seen_ns_, seen_ns_};
    looks_ = {last_};
    set_looking(false);
  }
  looker_.emplace([this] { look_often(); });
}

EventClock::~EventClock() {
  if (!looker_) return;
  {
    const Lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  looker_->join();
}

uint64_t EventClock::read() const { return since_boot_ns(tracer_.now()); }

Clock::time_point EventClock::saw_stop() {
  const auto now = tracer_.now();
  seen_ns_ = since_boot_ns(now);
  seen_used_ = false;
  if (!wall_clock_ || seen_ns_ - checked_ns_ > kWallClockChecked_ns) note_wall_clock(seen_ns_);
  return now;
}

// The wall clock differs from the monotonic one by a constant, until it is set. It is read between two readings of the
// other, so it is known how much the difference may be wrong.
void EventClock::note_wall_clock(uint64_t now_ns) {
  int64_t least = 0, most = 0;
  uint64_t before_ns = now_ns;
  for (int i = 0; i < kTries; ++i) {
    const int64_t unix_ns = tracer_.unix_ns();
    const uint64_t after_ns = read();
    least = unix_ns - static_cast<int64_t>(after_ns);
    most = unix_ns - static_cast<int64_t>(before_ns);
    if (after_ns - before_ns < kQuickRead_ns) break;
    before_ns = after_ns;
  }
  const auto error_ns = static_cast<uint64_t>((most - least + 1) / 2);
  if (wall_clock_) {
    const int64_t known = wall_clock_->offset_ns, give = static_cast<int64_t>(wall_clock_->error_ns);
    if (least <= known + give && known - give <= most) {
      checked_ns_ = now_ns;
      return;
    }
  }
  const uint64_t since_ns = read();
  wall_clock_ = WallClockRecord{wall_clock_ ? checked_ns_ : since_ns, since_ns, least + (most - least) / 2, error_ns};
  writer_.add(*wall_clock_);
  checked_ns_ = since_ns;
}

// ---- Looks

void EventClock::look(uint64_t stamp) {
  const Lock lock(mutex_);
  if (stamp == last_.stamp) {
    last_.before_ns = std::max(last_.before_ns, seen_ns_);
    if (!looks_.empty()) looks_.back() = last_;
    adapt(last_);
    return;
  }
  // The other thread may have read a later stamp already.
  if (stamp > last_.stamp) add({stamp, std::max(seen_ns_, last_.before_ns), read()});
}

void EventClock::add(const Look& look) {
  last_ = look;
  looks_.push_back(look);
  adapt(look);
}

void EventClock::adapt(const Look& look) {
  const uint64_t passed_ns = look.before_ns - std::min(look.before_ns, adapted_.before_ns);
  if (passed_ns < kAdapted_ns) return;
  const uint64_t calls = look.stamp - adapted_.stamp;
  const uint64_t calls_in_ms = calls / (passed_ns / kOfTime_ns);
  const bool many = calls_in_ms >= kManyCalls;
  if (!many && looking_ && passed_ns < kFewFor_ns) return;  // programs may only wait for a processor
  adapted_ = look;
  set_looking(many, calls_in_ms);
}

void EventClock::set_looking(bool looking, uint64_t calls_in_ms) {
  arena_->set_notes_every(looking ? static_cast<uint32_t>(std::min<uint64_t>(calls_in_ms * 2 / 5, 1 << 20)) : 1);
  if (looking && !looking_) changed_.notify_all();
  looking_ = looking;
}

void EventClock::look_often() {
  sigset_t signals;
  sigfillset(&signals);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  run_soon();
  Lock lock(mutex_);
  int idle = 0;
  while (!ending_) {
    if (!looking_) {
      idle = 0;
      changed_.wait(mutex_);
      continue;
    }
    changed_.wait_for(mutex_, kLookPeriod);
    const uint64_t before_ns = read();
    const uint64_t stamp = arena_->now();
    if (stamp > last_.stamp) {
      idle = 0;
      add({stamp, before_ns, read()});
    } else {
      last_.before_ns = std::max(last_.before_ns, before_ns);
      if (!looks_.empty()) looks_.back() = last_;
      if (++idle >= kIdleLooks) set_looking(false);
    }
  }
}

// ---- Served calls

void EventClock::begin_served() {
  const Lock lock(mutex_);
  const size_t kept = std::min<size_t>(passed_, 2);
  known_.erase(known_.begin(), known_.begin() + static_cast<ptrdiff_t>(passed_ - kept));
  passed_ = kept;
  for (const Look& look : looks_) {
    if (!known_.empty() && known_.back().stamp == look.stamp) {
      known_.back() = look;
    } else {
      known_.push_back(look);
    }
  }
  looks_.clear();
  looks_.push_back(last_);
}

void EventClock::at_record(uint64_t stamp, uint64_t time_ns) {
  while (passed_ < known_.size() && known_[passed_].stamp < stamp) ++passed_;
  if (passed_ == 0 || passed_ == known_.size()) {  // the program has written there
    now_ = {};
    return;
  }
  const uint64_t from_ns = known_[passed_ - 1].before_ns, to_ns = known_[passed_].after_ns;
  // The time was noted right before the stamp was taken.
  const uint64_t earliest_ns = passed_ > 1 ? known_[passed_ - 2].before_ns : from_ns;
  const bool noted = earliest_ns <= time_ns && time_ns <= to_ns;
  now_ = noted ? EventTime{time_ns, time_ns, 0} : EventTime{from_ns, to_ns, 0};
}

void EventClock::end_served() {
  if (std::exchange(seen_used_, true)) seen_ns_ = read();
  now_ = {seen_ns_, seen_ns_, 0};
}

}  // namespace redrive
