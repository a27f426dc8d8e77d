#include "supervisor/record/stops/checkpointer.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>

#include "checkpoint/address_space.h"
#include "supervisor/record/checkpoints/intervals.h"
#include "supervisor/record/checkpoints/state_capture.h"
#include "supervisor/record/stops/checkpoint_copies.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr int kShareOfFailures = 20;  // until a failed checkpoint is tried again: times as long as the attempt took

constexpr auto kClockInterval = 1ms;  // how often a unit's CPU clock is asked whether a checkpoint is due

constexpr auto kWakeInterval = 100ms;  // how often the policy is asked whether a unit is to be woken for a checkpoint

// Whether a call that sleeps has done nothing yet: once woken, it can be entered again as if nothing had happened.
bool sleeps_whole(int64_t number, std::span<const uint64_t, 6> args) {
  switch (number) {
    case SYS_read:
    case SYS_readv:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_futex:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_accept:
    case SYS_accept4:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_pause:
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait:
    case SYS_epoll_pwait2:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_msgsnd:
    case SYS_msgrcv:
    case SYS_flock:
    case SYS_restart_syscall:  // of one of these
      return true;
    case SYS_fcntl:
      return args[1] == F_SETLKW || args[1] == F_OFD_SETLKW;
    case SYS_recvfrom:
      return !(args[3] & MSG_WAITALL);
    case SYS_recvmsg:
      return !(args[2] & MSG_WAITALL);
    default:
      return false;
  }
}

}  // namespace

bool Checkpointer::begin_joined_interval(Unit& unit, Thread& thread) {
  user_regs_struct regs;
  if (!tracer_.get_regs(thread.tid, regs)) return false;
  unit.checkpoint_first = !begin_interval(unit, CheckpointKind::image, thread, nullptr);
  return !unit.checkpoint_first;
}

void Checkpointer::ask_at_each_event() {
  if (!messages_.looks_for_place()) return;
  for (auto& [id, unit] : tracees_.units()) {
    if (unit->baton.is_held() && unit->in_interval) ask_to_stop(*unit->baton.holder());
  }
}

bool Checkpointer::can_copy() const {
  const CopiesAlive alive = images_.copies_alive();
  return alive.count < limits_.copies || (alive.count < tracees_.units().size() && alive.bytes < limits_.copied_bytes);
}

bool Checkpointer::is_due(Unit& unit) {
  if (limits_.checkpoint_period_ns == 0 || stopped_) return false;
  const auto now = tracer_.now();
  const bool at_each_event = unit.checkpoint_wanted || messages_.looks_for_place();
  if (now < unit.last_clock_check || (!at_each_event && now - unit.last_clock_check < kClockInterval)) return false;
  unit.last_clock_check = now;
  const uint64_t at_ns = unit.clock.interval_ns();
  const bool due = unit.checkpoint_wanted || at_ns >= intervals_.checkpoint_at_ns(unit);
  if (!due && !messages_.wants_checkpoint(unit.id, at_ns)) return false;
  if (births_pending(unit)) return false;
  if (!can_copy()) {
    // The unit takes none together with others either: as long as one is wanted, no call is served.
    unit.checkpoint_wanted = false;
    note_skipped(unit);
    unit.last_clock_check = now + kSkippedInterval;
    return false;
  }
  return true;
}

// Messages that cross from an interval that is old into one that is new are what the policy has to keep. So units whose
// checkpoint is half due take it when another one does: from then on they take theirs together, for as long as they run
// at the same pace. A unit that waits for others most of the time grows old by their messages, not by its own CPU time.
void Checkpointer::align(const Unit& with) {
  if (limits_.independent_checkpoints) return;
  const auto now = tracer_.now();
  for (auto& [id, unit] : tracees_.units()) {
    if (unit.get() == &with || !unit->in_interval || unit->processes.empty()) continue;
    const std::chrono::nanoseconds half(unit->period_ns / 2);
    const bool old_by_messages = unit->received && now - unit->interval_began >= half;
    const uint64_t at_ns = unit->clock.interval_ns();
    if (old_by_messages || std::chrono::nanoseconds(at_ns) >= half || messages_.wants_checkpoint(id, at_ns)) {
      unit->checkpoint_wanted = true;
    }
    if (unit->checkpoint_wanted && unit->baton.is_held()) ask_to_stop(*unit->baton.holder());
  }
}

void Checkpointer::wake(Unit& unit) {
  const auto now = tracer_.now();
  if (now - unit.last_woken < kWakeInterval || !unit.in_interval || !can_copy()) return;
  unit.last_woken = now;
  const bool wanted = limits_.checkpoint_period_ns > 0 && messages_.wants_checkpoint(unit.id, unit.clock.interval_ns());
  if (wanted || unit.checkpoint_requested) interrupt_sleep(unit);
}

void Checkpointer::request(Unit& unit) {
  if (!unit.in_interval || !can_copy()) return;
  unit.checkpoint_wanted = unit.checkpoint_requested = true;
  if (unit.baton.is_held()) ask_to_stop(*unit.baton.holder());
  const auto now = tracer_.now();
  if (now - unit.last_woken < kWakeInterval) return;
  unit.last_woken = now;
  interrupt_sleep(unit);
}

// Has a thread that sleeps in a call come out of it, for a checkpoint, if the call can be entered again.
void Checkpointer::interrupt_sleep(Unit& unit) {
  const auto asleep = [&](const auto& entry) {
    const Thread& thread = *entry.second;
    if (thread.is<Thread::User>()) {
      const gate::Slot* slot = thread.process->gate ? slot_of(thread) : nullptr;
      if (!slot || slot->phase != gate::Phase::kernel) return false;
      return sleeps_whole(static_cast<int64_t>(slot->regs.rax), std::span<const uint64_t, 6>(&slot->regs.rdi, 6));
    }
    if (!thread.is<Thread::Syscall>() && !thread.is<Thread::Blocked>()) return false;
    return sleeps_whole(static_cast<int64_t>(thread.entry.orig_rax), thread.call.args);
  };
  const auto sleeper = std::find_if(unit.threads.begin(), unit.threads.end(), asleep);
  if (sleeper == unit.threads.end() || (unit.baton.is_held() && unit.baton.holder() != sleeper->second)) {
    return;
  }
  unit.checkpoint_wanted = true;
  Thread& thread = *sleeper->second;
  thread.woken = !thread.is<Thread::User>();
  ask_to_stop(thread);
  tracer_.interrupt(thread.tid);
}

void Checkpointer::checkpoint(Thread& trigger) {
  const auto stopped_at = tracer_.now();
  Process& process = *trigger.process;
  Unit& unit = *process.unit;
  const user_regs_struct entry = trigger.entry;
  // Only a process that shares its memory with no other can be copied by a clone; a joined unit is read while it is
  // stopped. So is a process whose copy would begin a PID namespace, and end it.
  const bool copied = unit.processes.size() == 1 && !forks_into_namespace(process.pid);
  const auto skip = [&](const std::string& why) {
    unit.checkpoint_wanted = false;
    const auto now = tracer_.now();
    const auto until_next = std::max<Clock::duration>(kSkippedInterval, kShareOfFailures * (now - stopped_at));
    unit.last_clock_check = now + until_next;
    note_skipped(unit, until_next);
    if (!unit.in_interval && trigger.left_out) {
      unit.checkpoint_first = true;  // at another thread
    } else if (!unit.in_interval) {
      intervals_.begin(unit, CheckpointKind::image, process, 0);
      findings_.add_unsure(unit, "a checkpoint that it needs could not be stored: " + why);
    }
    control_.rewind(trigger, entry);
  };
  auto captured = capture_.take(unit, trigger, true, copied);
  if (!captured) return skip(captured.error().message);
  ImageJob& job = *captured;
  if (copied) {
    pid_t copy = -1;
    // CLONE_FILES: the copy adds no references to the program's open files. Exit signal 0: the program is not told of
    // its end.
    const auto made =
        copies_.inject(trigger, entry, SYS_clone, {CLONE_FILES, 0, 0, 0, 0, CheckpointCopies::kMark}, &copy);
    if (!made) {
      // The program was killed meanwhile. The copy would keep its descriptors open.
      if (copy >= 0) copies_.end(copy);
      return;
    }
    if (!copies_.give(job, copy, trigger)) return skip("the program could not be copied");
  }
  intervals_.end(unit);
  intervals_.begin(unit, CheckpointKind::image, process, static_cast<uint64_t>((tracer_.now() - stopped_at).count()));
  job.interval = unit.interval;
  control_.rewind(trigger, entry);
  add_image(unit, std::move(job));
}

void Checkpointer::hand_over(Unit& unit, ImageJob job, uint64_t bytes) {
  unit.has_image = true;
  for (const auto& process : job.state.processes) {
    for (const auto& mapping : process.mappings) {
      writer_.mention_file(unit.id, mapping.file);
      findings_.note_mapped(unit, {mapping.start, mapping.end});
    }
  }
  job.by_criu = limits_.checkpoint_engine.chooses_criu(bytes, unit.period_ns);
  const Gate* const gate = unit.processes.front()->gate.get();
  if (job.by_criu && job.copies.size() == 1 && gate && gate->slot()) copies_.put_to_sleep(job.copies.front());
  job.ended_units = std::exchange(ended_with_image_, {});
  images_.add(std::move(job));
}

void Checkpointer::add_image(Unit& unit, ImageJob job) {
  for (const auto& copy : job.copies) job.copied_bytes += private_bytes(copy.original);
  const uint64_t bytes = job.bytes() + job.copied_bytes;
  intervals_.note_image(unit, job.state, bytes);
  if (!unit.checkpoint_wanted.exchange(false)) align(unit);
  hand_over(unit, std::move(job), bytes);
}

void Checkpointer::note_checkpoint(Process& process) {
  Unit& unit = *process.unit;
  intervals_.end(unit);
  intervals_.begin(unit, CheckpointKind::image, process, 0);
  if (!unit.checkpoint_wanted.exchange(false)) align(unit);
}

void Checkpointer::store_now(Unit& unit, Thread& trigger, const user_regs_struct* regs,
                             const StateCapture::KnownMappings& known) {
  const auto stopped_at = tracer_.now();
  auto job = capture_.take(unit, trigger, false, false, known);
  if (!trigger.left_out) store(unit, std::move(job), regs, stopped_at);
}

bool Checkpointer::begin_interval(Unit& unit, CheckpointKind kind, Thread& trigger, const user_regs_struct* regs,
                                  const StateCapture::KnownMappings& known) {
  const auto stopped_at = tracer_.now();
  auto job = capture_.take(unit, trigger, false, false, known);
  if (trigger.left_out) return false;
  intervals_.begin(unit, kind, *trigger.process, 0);
  store(unit, std::move(job), regs, stopped_at);
  return true;
}

void Checkpointer::store(Unit& unit, Result<ImageJob> job, const user_regs_struct* regs, Clock::time_point stopped_at) {
  if (!job) {
    copies_.count_skipped();
    findings_.add_unsure(unit, "a checkpoint that it needs could not be stored: " + job.error().message);
    return;
  }
  if (regs) job->state.threads.front().regs = *regs;
  job->interval = unit.interval;
  const uint64_t bytes = job->bytes();
  intervals_.note_image(unit, job->state, bytes);
  hand_over(unit, std::move(*job), bytes);
  unit.interval_record.pause_ns = static_cast<uint64_t>((tracer_.now() - stopped_at).count());
  writer_.add(unit.interval_record);
}

void Checkpointer::note_skipped(Unit& unit, Clock::duration until_next) {
  copies_.count_skipped();
  if (!unit.in_interval) return;
  const auto wait_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(until_next).count();
  messages_.note_skipped(unit.id, unit.clock.interval_ns() + static_cast<uint64_t>(wait_ns));
}

void Checkpointer::note_end(const Unit& unit) {
  if (unit.has_image) ended_with_image_.push_back(unit.id);
}

}  // namespace redrive
