#include "supervisor/record/attach/seizer.h"

#include <fmt/format.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/procfs.h"
#include "supervisor/record/attach/attachable.h"
#include "supervisor/record/placement/placement.h"
#include "supervisor/record/stops/signal_delivery.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

// With threads that do not stop: in the first attempt, and in the last.
constexpr Clock::duration kFirstPatience = 50ms, kLastPatience = 800ms;
constexpr Clock::duration kLongest = 10s;  // with threads that wait for a processor

bool has_ended(std::string_view state) { return state.empty() || state[0] == 'Z' || state[0] == 'X'; }

}  // namespace

Result<void> Seizer::stop_all(const std::vector<pid_t>& roots) {
  placement_.stay_home();  // stops on another processor would take much longer
  for (Clock::duration patience = kFirstPatience;; patience *= 2) {
    const auto missing = try_to_stop(roots, patience);
    if (missing && *missing == Missing::none) break;
    if (missing && patience < kLastPatience) {
      let_run(patience);
      continue;
    }
    release();
    if (!missing) return missing.error();
    const pid_t tid = *running_.begin();
    return cannot_attach(
        seized_[tid].pid,
        fmt::format("its thread {} does not stop: it waits for a device, or for a child of vfork(2) to "
                    "begin its program (try again)",
                    tid));
  }
  for (const pid_t root : roots) {
    if (seized_.contains(root)) continue;
    release();
    return cannot_attach(root, "it has just ended");
  }
  for (const auto& [tid, seized] : seized_) restart_woken(tid);
  return {};
}

// A thread that is not stopped yet may make others. Those of traced ones are traced, and are found when the birth is
// reported; those of others are found by looking until there is nothing new. A process may have been left out because
// others ended, so it is looked for once more when all that are known have stopped.
Result<Seizer::Missing> Seizer::try_to_stop(const std::vector<pid_t>& roots, Clock::duration patience) {
  for (bool first = true;; first = false) {
    bool found = false;
    for (bool again = true; again; found |= again) {
      ASSIGN_OR_RETURN(again, seize_new(roots));
    }
    if (!found && !first) return Missing::none;
    for (const pid_t tid : running_) placement_.send(tid, {});
    if (first) stopped_at_ = tracer_.now();
    for (const pid_t tid : running_) tracer_.interrupt(tid);
    ASSIGN_OR_RETURN(const Missing missing, await_stops(patience));
    if (missing == Missing::some) return missing;
  }
}

// Traces those that were not traced. Returns whether there were any.
Result<bool> Seizer::seize_new(const std::vector<pid_t>& roots) {
  bool found = false;
  for (const pid_t pid : list_(roots)) {
    for (const pid_t tid : proc_threads(pid)) {
      if (seized_.contains(tid)) continue;
      if (const auto seized = tracer_.seize(tid); !seized) {
        const ProcValues status = proc_status(tid);
        if (has_ended(status.text("State"))) continue;
        const bool ours = status.number("TracerPid") == static_cast<uint64_t>(getpid());
        if (!ours) return cannot_attach(pid, seized.error().message);
      }
      add(tid);
      running_.insert(tid);
      found = true;
    }
  }
  return found;
}

void Seizer::add(pid_t tid) {
  Seized& seized = seized_[tid];
  seized.pid = static_cast<pid_t>(proc_status(tid).number("Tgid"));
  sched_getaffinity(tid, sizeof seized.processors, &seized.processors);
}

void Seizer::forget(pid_t tid) {
  for (std::set<pid_t>* const tids : {&running_, &stepping_, &on_way_}) tids->erase(tid);
  seized_.erase(tid);
}

Result<Seizer::Missing> Seizer::await_stops(Clock::duration patience) {
  const auto began = tracer_.now();
  while (!running_.empty()) {
    const auto waited_for = tracer_.now() - began;
    if (waited_for > kLongest || (waited_for > patience && !only_waits_for_processor())) return Missing::some;
    const Waited waited = tracer_.wait_for_any();
    if (const auto* stopped = std::get_if<Stopped>(&waited)) {
      TRY(take_stop(*stopped));
    } else if (std::holds_alternative<NoTracees>(waited)) {
      return Error{"the process has ended"};
    }
  }
  return Missing::none;
}

// On a busy machine it takes a while until a thread gets to where it stops.
bool Seizer::only_waits_for_processor() const {
  return std::all_of(running_.begin(), running_.end(), [](pid_t tid) {
    const std::string state(proc_status(tid).text("State"));
    return state.starts_with('R') || state.starts_with('t') || has_ended(state);
  });
}

Result<void> Seizer::take_stop(const Stopped& stopped) {
  const auto& [tid, stop] = stopped;
  if (is<Gone>(stop)) {
    forget(tid);
    return {};
  }
  if (is<Exiting>(stop)) {
    tracer_.resume(tid, Resume::cont);
    return {};
  }
  if (const auto* exec = std::get_if<Exec>(&stop)) {
    // Its other threads are gone. It stops again right before its first instruction.
    if (exec->former_tid != tid) forget(exec->former_tid);
    add(tid);
    on_way_.erase(tid);
    running_.insert(tid);
    tracer_.resume(tid, Resume::to_syscall_exit);
    return {};
  }
  if (!seized_.contains(tid)) add(tid);
  if (const auto* birth = std::get_if<Birth>(&stop)) {
    if (birth->child && !seized_.contains(birth->child)) {
      add(birth->child);
      seized_[birth->child].processors = seized_[tid].processors;
      running_.insert(birth->child);
    }
    tracer_.resume(tid, Resume::to_syscall_exit);
    return {};
  }
  if (is<GroupStop>(stop)) {
    if (!continues(seized_[tid].pid)) {
      running_.erase(tid);
      return cannot_attach(seized_[tid].pid, "it was stopped meanwhile");
    }
    tracer_.listen(tid);
    tracer_.send(seized_[tid].pid, SIGCONT);
    return {};
  }
  const auto* const signalled = std::get_if<SignalStop>(&stop);
  if (is_between_vfork_and_exec(tid)) {
    on_way_.insert(tid);
    running_.insert(tid);
    tracer_.resume(tid, Resume::cont, signalled ? signalled->signal : 0);
    return {};
  }
  if (signalled && !stepping_.erase(tid)) return take_signal(tid, signalled->signal);
  running_.erase(tid);
  return {};
}

Result<void> Seizer::take_signal(pid_t tid, int signal) {
  siginfo_t info{};
  tracer_.get_siginfo(tid, info);
  const SignalMasks masks = tracer_.signal_masks(tid);
  if (signal == SIGSTOP && continues(seized_[tid].pid)) {
    running_.erase(tid);
    return {};
  }
  if (masks.caught & bit_of(signal)) {
    stepping_.insert(tid);
    restart_woken(tid);
    tracer_.resume(tid, Resume::step, signal);
    return {};
  }
  if (!is_ignored(masks, signal)) seized_[tid].signal = info;
  running_.erase(tid);
  return {};
}

bool Seizer::continues(pid_t pid) const { return stops_ == Stops::continued || left_by_killed_recorder(pid); }

// Its parent does not stop before it has begun its program, or has ended.
bool Seizer::is_between_vfork_and_exec(pid_t tid) {
  if (on_way_.contains(tid)) return true;
  const pid_t pid = seized_[tid].pid;
  if (tid != pid) return false;
  const auto parent = static_cast<pid_t>(proc_status(pid).number("PPid"));
  return seized_.contains(parent) && syscall(SYS_kcmp, parent, pid, KCMP_VM, 0, 0) == 0;
}

// The kernel fails some calls in which a thread is interrupted (ptrace(2), BUGS; see WokenCalls). It is told to enter
// them again, unless the call has closed what it was for.
void Seizer::restart_woken(pid_t tid) {
  user_regs_struct regs;
  if (!tracer_.get_regs(tid, regs)) return;
  const bool failed = static_cast<int64_t>(regs.orig_rax) >= 0 && static_cast<int64_t>(regs.rax) == -EINTR;
  if (!failed || regs.orig_rax == SYS_close) return;
  regs.rax = static_cast<uint64_t>(kErestartNoHandler);
  tracer_.set_regs(tid, regs);
}

void Seizer::release() {
  std::vector<pid_t> stopped;
  for (const auto& [tid, seized] : seized_) {
    give_back_processors(tid, seized.processors);
    if (!running_.contains(tid)) stopped.push_back(tid);
  }
  for (const pid_t tid : stopped) {
    const auto& signal = seized_[tid].signal;
    restart_woken(tid);
    let_run(tid, signal ? signal->si_signo : 0);
  }
}

void Seizer::let_run(pid_t tid, int signal) {
  tracer_.detach(tid, signal);
  forget(tid);
}

// ... and those that stop meanwhile, too.
void Seizer::let_run(Clock::duration time) {
  release();
  for (const auto until = tracer_.now() + time; tracer_.now() < until && !running_.empty();) {
    const Waited waited = tracer_.wait_for_any();
    const auto* const stopped = std::get_if<Stopped>(&waited);
    if (!stopped) continue;
    const auto& [tid, stop] = *stopped;
    if (is<Gone>(stop)) {
      forget(tid);
    } else if (is<Exiting>(stop)) {
      tracer_.resume(tid, Resume::cont);
    } else {
      if (const auto* birth = std::get_if<Birth>(&stop); birth && birth->child)
        add(birth->child), running_.insert(birth->child);
      const auto* const signalled = std::get_if<SignalStop>(&stop);
      restart_woken(tid);
      let_run(tid, signalled && !stepping_.contains(tid) ? signalled->signal : 0);
    }
  }
}

}  // namespace redrive
