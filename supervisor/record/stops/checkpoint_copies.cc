#include "supervisor/record/stops/checkpoint_copies.h"

#include <linux/close_range.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>

#include "supervisor/record/front/lifeline.h"
#include "supervisor/record/kernel/stop_queue.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/hidden_copies.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// Whether all copies of the process that were made have ended.
bool have_ended(const Process& process) { return process.copies.size() == process.copies_to_reap.size(); }

// What a copy does first.
constexpr std::array<gate::InjectedCall, 2> kLeave{
    {{SYS_setsid, {}}, {SYS_close_range, {0, ~0u, CLOSE_RANGE_UNSHARE}}}};

}  // namespace

CheckpointCopies::CheckpointCopies(Tracer& tracer, StopQueue& stops, TraceeCalls& calls, ImageWorker& images,
                                   GateArena* arena, Tracees& tracees, ThreadControl& control, Ends& ends)
    : tracer_(tracer),
      stops_(stops),
      calls_(calls),
      images_(images),
      arena_(arena),
      tracees_(tracees),
      control_(control),
      ends_(ends) {
  if (arena_) arena_->set_lasting(kLeave);
}

void CheckpointCopies::end(pid_t copy) {
  tracer_.send(copy, SIGKILL);
  for (auto stop = tracer_.wait(copy); stop && !is<Gone>(*stop); stop = tracer_.wait(copy)) {
    tracer_.resume(copy, Resume::cont);
  }
  leaving_.erase(copy);
  stops_.forget(copy);
}

bool CheckpointCopies::give(ImageJob& job, pid_t copy, const Thread& original) {
  if (copy < 0 || !ends_.wait_stop(copy)) return false;
  tracer_.set_option(copy, TraceeOption::killed_with_tracer);  // it must never run
  Process& process = *original.process;
  const pid_t number = process.copies.emplace_back(pid_in_own_namespace(copy));
  leave_shared(copy, process);
  auto& given = job.copies.emplace_back(ImageJob::Copy{process.serial, copy, number, process.pid, {}, {}, {}});
  if (auto memory = tracer_.open_memory(copy)) given.memory = std::move(*memory);
  return true;
}

// Has the copy leave the program's table of descriptors, and its group: otherwise they would be there as long as the
// copy when the program is killed. The program does not wait for that. It needs the tier's code.
void CheckpointCopies::leave_shared(pid_t copy, const Process& original) {
  user_regs_struct regs;
  if (!original.gate || !original.gate->slot() || !tracer_.get_regs(copy, regs)) return;
  block_signals(tracer_, copy);
  regs.rip = arena_->header().inject;
  regs.orig_rax = ~0ull;
  regs.rbp = GateArena::kLasting;
  regs.rbx = regs.rbp + sizeof kLeave;
  if (!tracer_.set_regs(copy, regs)) return;
  leaving_.insert(copy);
  tracer_.resume(copy, Resume::cont);
}

bool CheckpointCopies::take_stop(const Stopped& stopped) {
  const pid_t copy = stopped.tid;
  if (!leaving_.contains(copy)) return false;
  user_regs_struct regs;
  const bool at_call = is<SyscallEntry>(stopped.stop) && tracer_.get_regs(copy, regs);
  if (at_call && regs.rip == arena_->header().boundary) {
    leaving_.erase(copy);
  } else {
    tracer_.resume(copy, Resume::cont);
  }
  return true;
}

void CheckpointCopies::put_to_sleep(ImageJob::Copy& copy) {
  // If the recorder is killed, nobody ends it; then this does.
  constexpr unsigned kLongestSleep_s = 600;
  // No handler, no flags, no mask: what comes after the orders in their page is zero.
  struct KernelSigaction {
    uint64_t handler, flags, restorer, mask;
  };
  static_assert(sizeof(gate::Orders) + sizeof kLeave + sizeof(KernelSigaction) <= gate::kOrdersSize);
  constexpr Address kDefaultAction = gate::kOrders + gate::kOrdersSize - sizeof(KernelSigaction);
  // CRIU puts code into the first executable mapping, and cannot where that is the tier's.
  constexpr Address kForCriu = gate::kCode - kPageSize;
  constexpr uint64_t kPrivateCode = PROT_READ | PROT_EXEC, kThere = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  while (leaving_.contains(copy.pid)) {
    const auto stop = tracer_.wait(copy.pid);
    if (!stop || is<Gone>(*stop)) return;
    take_stop({copy.pid, *stop});
  }
  HeldSignals none;
  user_regs_struct regs;
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, copy.pid, 0)));
  if (!pidfd || !tracer_.get_regs(copy.pid, regs)) return;
  const auto made = calls_.make(*arena_, {copy.pid, none}, regs,
                                {{SYS_rt_sigaction, {SIGALRM, kDefaultAction, 0, sizeof(uint64_t)}},
                                 {SYS_alarm, {kLongestSleep_s}},
                                 {SYS_mmap, {kForCriu, kPageSize, kPrivateCode, kThere, ~0ull, 0}},
                                 {SYS_munmap, {gate::kSlot, gate::kSlotSize}}});
  if (!made || *made != 0) return;
  // No other signal reaches it. If the kernel has it enter the call again, its filter lets that through there.
  tracer_.set_signal_mask(copy.pid, ~(uint64_t{1} << (SIGALRM - 1)));
  constexpr Address kInstructionSize = 2;
  regs.rip = arena_->header().executed - kInstructionSize;
  regs.rax = SYS_ppoll;
  regs.orig_rax = ~0ull;
  regs.rdi = regs.rsi = regs.rdx = regs.r10 = regs.r8 = 0;
  if (!tracer_.set_regs(copy.pid, regs)) return;
  tracer_.detach(copy.pid);
  copy.pidfd = std::move(pidfd);
}

void CheckpointCopies::end(const ImageJob::Copy& copy) {
  if (!copy.pidfd) end(copy.pid);
  if (Thread* original = tracees_.find(copy.original)) {
    original->process->copies_to_reap.push_back(copy.number);
    ask_to_stop(*original);
  }
}

void CheckpointCopies::collect() {
  for (auto& done : images_.take_done()) {
    if (done.error) count_skipped();
    for (const auto& copy : done.copies) end(copy);
  }
  for (Delayed& delayed : std::exchange(delayed_, {})) {
    Thread* const thread = tracees_.find(delayed.tid);
    if (!thread || thread->serial != delayed.serial) continue;
    if (have_ended(*thread->process)) {
      delayed.go_on(*thread);
    } else {
      delayed_.push_back(std::move(delayed));
    }
  }
}

bool CheckpointCopies::delay(const Thread& thread, std::function<void(Thread&)> go_on) {
  if (have_ended(*thread.process)) return false;
  delayed_.push_back({thread.tid, thread.serial, std::move(go_on)});
  return true;
}

bool CheckpointCopies::end_all() {
  if (images_.copies_alive().count == 0) return false;
  images_.wait_until_idle();
  collect();
  return true;
}

Result<uint64_t> CheckpointCopies::inject(Thread& thread, const user_regs_struct& at_entry, long number,
                                          std::initializer_list<uint64_t> args, pid_t* born) {
  user_regs_struct regs = at_entry;
  regs.orig_rax = static_cast<uint64_t>(number);
  int index = 0;
  for (const uint64_t arg : args) syscall_arg(regs, index++) = arg;
  // A clone starts again while a signal is pending (fork(2), ERESTARTNOINTR), and with a timer one can be pending every
  // time.
  const uint64_t own = block_signals(tracer_, thread.tid);
  note_injected(thread.tid, before_syscall(at_entry), own);
  control_.set_regs(thread, regs);
  if (!tracer_.set_option(thread.tid, TraceeOption::ignores_filters))
    return Error{"the program's filters do not let redrive make calls"};
  for (;;) {
    control_.resume(thread, Resume::to_syscall_exit);
    const auto stop = ends_.wait_stop(thread.tid);
    if (!stop) return Error{"the program was killed"};
    if (const auto* birth = std::get_if<Birth>(&*stop); birth && born) *born = birth->child;
    if (is<SyscallExit>(*stop)) break;
  }
  tracer_.set_option(thread.tid, TraceeOption::heeds_filters);
  tracer_.set_signal_mask(thread.tid, own);
  if (!control_.get_regs(thread, regs)) return Error{"the program was killed"};
  control_.set_regs(thread, before_syscall(at_entry));
  forget_injected();
  return static_cast<uint64_t>(regs.rax);
}

void CheckpointCopies::reap(Thread& thread) {
  const user_regs_struct entry = thread.entry;
  Process& process = *thread.process;
  const pid_t copy = process.copies_to_reap.back();
  process.copies_to_reap.pop_back();
  HiddenCopies::forget(process, copy);
  if (inject(thread, entry, SYS_wait4, {static_cast<uint64_t>(copy), 0, __WALL | WNOHANG, 0}))
    control_.rewind(thread, entry);
}

bool CheckpointCopies::is_lost(pid_t tid) {
  user_regs_struct regs;
  return tracer_.get_regs(tid, regs) && regs.orig_rax == SYS_clone && regs.rdi == CLONE_FILES && regs.r9 == kMark;
}

}  // namespace redrive
