#include "tests/unit/simulated_kernel.h"

#include <errno.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "interceptors/patch_window.h"
#include "supervisor/record/kernel/signal_turns.h"
#include "tests/unit/simulated_tier.h"
#include "tests/unit/unit_test.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kPlace = 16;  // bytes
constexpr uint64_t kProgram = 0x400000, kHandler = 0x500000, kStack = 0x7fff0000, kFrame = 4096;

// What the C library does not tell (linux/errno.h).
constexpr int64_t kErestartSys = -512, kErestartNoIntr = -513, kErestartNoHand = -514, kErestartBlock = -516;
bool starts_again(int64_t result) { return result <= kErestartSys && result >= kErestartBlock; }

// What every program does about signals: the first has its calls end with EINTR, and of the last each one counts.
constexpr int kCaught = SIGUSR1, kRestarting = SIGALRM, kIgnored = SIGURG, kQueued = 40;
constexpr uint64_t kAllCaught = bit_of(kCaught) | bit_of(kRestarting) | bit_of(kQueued);

constexpr size_t kMostBirths = 8;
constexpr unsigned kFewestCalls = 2, kMostCalls = 12;  // of a thread
constexpr uint64_t kMostLoops = 10;                    // of a call in vain
constexpr int kMostIdle = 1000;                        // rounds in which nobody gets on

bool makes_task(uint64_t number) { return number == SYS_fork || number == SYS_vfork || number == SYS_clone; }
bool is_exit(int64_t number) { return number == SYS_exit || number == SYS_exit_group; }

// Whether the place's call was replaced by a jump to the tier.
bool is_replaced(uint64_t place) { return place < kStack && place / kPlace % 4 != 0; }

// Memory of which only the code can be read: a syscall instruction at each place, and nothing to do between them.
class Code : public MemorySource {
 public:
  size_t read_some(Address from, void* to, size_t size) const override {
    if (from < kProgram || from >= kStack) return 0;
    for (size_t i = 0; i < size; ++i) static_cast<uint8_t*>(to)[i] = byte_at(from + i);
    return size;
  }
  bool write(Address, const void*, size_t) const override { return false; }

 private:
  static uint8_t byte_at(Address address) {
    constexpr uint8_t kSyscall[] = {0x0f, 0x05}, kNop = 0x90;
    return address % kPlace < sizeof kSyscall ? kSyscall[address % kPlace] : kNop;
  }
};

}  // namespace

struct SimulatedKernel::Process {
  Process(pid_t number, pid_t its_parent, pid_t its_unit) : pid(number), parent(its_parent), unit(its_unit) {}

  const pid_t pid, parent, unit;  // a unit has the number of the process that it began with
  std::vector<Task*> tasks;
  std::vector<pid_t> children;  // that have not been waited for
  std::deque<siginfo_t> pending;
  uint64_t cpu_ns = 0;
  uint64_t wakes_at_ns = UINT64_MAX;  // wake_when_used()
  uint64_t caught = 0;                // signals that one of its threads has taken and handles
  bool ending = false, ended = false;
  std::shared_ptr<SimulatedTier> tier;  // shared with the memory; null: there is no memory

  bool executes_tier(uint64_t ip) const { return tier && tier->executes_at(ip); }
};

struct SimulatedKernel::Task : TraceeContext {
  // Where it is, or would be if it were not stopped.
  enum class At {
    user,      // between two calls
    entry,     // at a call's entry
    inside,    // has begun a call
    exit,      // out of the call, still in the kernel
    returning  // on its way to user code: the kernel looks for signals
  };
  struct Frame {
    user_regs_struct regs;
    uint64_t mask;
  };

  pid_t tid;
  Process* process;
  At at = At::returning;
  std::optional<Stop> stop;  // it does not run
  bool reported = false;     // ... and was waited for
  uint64_t own_mask = 0;     // signal_mask, as far as the program knows
  std::deque<siginfo_t> pending;
  std::vector<Frame> frames;
  SimulatedTier::Frame served;  // in the tier
  unsigned calls_left = 0;
  uint64_t loop_end = 0, looped = 0, loops = 0;  // this call is made so many times more, as long as it is in vain
  bool interrupted = false, stops_at_exit = false, steps = false, reports_exit = false, begun = false, lives = true;
  uint64_t caught_before = 0;    // Process::caught at the beginning of the call
  bool woken_to_handle = false;  // a caught signal has ended the call with EINTR
  bool sleeps_on = false;        // ... but the tracer has it begin again
  bool owes_handler = false;     // a call has ended with EINTR
  int64_t result = 0;            // of the call that it is in
  Clock::time_point until{};     // it sleeps
  pid_t waits_for = 0;           // until a child of vfork(2) has ended
  int sent = 0, seen = 0;        // queued signals to it, by their values
  std::optional<Stop> end;       // not to be reported before all others of the process have ended
};

SimulatedKernel::SimulatedKernel(uint64_t seed, Calls calls) : random_(seed) {
  births_left_ = below(kMostBirths + 1);
  long_results_ = one_in(8);
  auto process = std::make_unique<Process>(kFirstPid, 0, kFirstPid);
  if (calls == Calls::served) process->tier = std::make_shared<SimulatedTier>(kStack);
  Task& task = add(*(processes_[kFirstPid] = std::move(process)));
  task.stop = Exec{task.tid};
}

SimulatedKernel::~SimulatedKernel() = default;

SimulatedKernel::Task* SimulatedKernel::find(pid_t tid) {
  const auto found = tasks_.find(tid);
  return found == tasks_.end() ? nullptr : found->second.get();
}

SimulatedKernel::Task* SimulatedKernel::stopped(pid_t tid) {
  Task* const task = find(tid);
  return task && task->stop && task->reported ? task : nullptr;
}

TraceeContext* SimulatedKernel::context(pid_t tid) { return stopped(tid); }

SimulatedKernel::Task& SimulatedKernel::add(Process& process) {
  const pid_t tid = next_pid_++;
  auto& task = tasks_[tid] = std::make_unique<Task>();
  task->tid = tid;
  task->process = &process;
  task->regs.rip = kProgram + kSyscallSize;
  task->regs.rsp = kStack;
  task->regs.cs = kCodeSegment;
  task->regs.orig_rax = ~0ull;
  task->calls_left = kFewestCalls + static_cast<unsigned>(below(kMostCalls - kFewestCalls + 1));
  process.tasks.push_back(task.get());
  return *task;
}

// ---- Waiting

bool SimulatedKernel::has_stopped(pid_t tid) {
  const Task* const task = find(tid);
  return !task || (task->stop && !task->reported);
}

Stopped SimulatedKernel::report(Task& task) {
  const Stopped stopped{task.tid, *task.stop};
  task.reported = true;
  if (is<Gone>(stopped.stop)) {
    Process& process = *task.process;
    std::erase(process.tasks, &task);
    tasks_.erase(task.tid);
    process.ended = process.tasks.empty();
    if (process.tasks.size() == 1 && process.tasks[0]->end) process.tasks[0]->stop = process.tasks[0]->end;
  }
  return stopped;
}

Waited SimulatedKernel::take_any() {
  std::vector<Task*> ready;
  for (const auto& [tid, task] : tasks_) {
    if (task->stop && !task->reported) ready.push_back(task.get());
  }
  if (!ready.empty()) return report(*ready[below(ready.size())]);
  if (tasks_.empty()) return NoTracees{};
  return NoneStopped{};
}

Waited SimulatedKernel::wait_for_any() {
  for (;;) {
    for (auto ahead = below(4); ahead > 0; --ahead) advance_any();
    if (const Waited waited = take_any(); !std::holds_alternative<NoneStopped>(waited)) return idle_ = 0, waited;
    if (now() >= wake_at_) break;
    if (one_in(20)) send_something();
    if (advance_any()) continue;
    REQUIRE_MESSAGE(++idle_ < kMostIdle, ("nobody gets on: " + describe()));
    now_ = now() + 1ms;
    send_something();
  }
  wake_at_ = Clock::time_point::max();
  return NoneStopped{};
}

std::optional<Stop> SimulatedKernel::wait(pid_t tid) {
  Task* const task = find(tid);
  if (!task) return {};
  while (!has_stopped(tid)) {
    if (one_in(3)) advance_any();
    if (!has_stopped(tid))
      REQUIRE_MESSAGE((advance(*task) || advance_any()), fmt::format("waits for {} for ever: {}", tid, describe()));
  }
  return report(*task).stop;
}

Result<void> SimulatedKernel::seize(pid_t tid) {
  if (!find(tid)) return Error{"no such process"};
  return {};
}

void SimulatedKernel::detach(pid_t, int) { FAIL("nothing is let go here"); }

bool SimulatedKernel::set_option(pid_t tid, TraceeOption option) {
  Task* const task = find(tid);
  if (task && option == TraceeOption::reports_exit) task->reports_exit = true;
  return task;
}

bool SimulatedKernel::has_memory(pid_t tid) {
  const Task* const task = find(tid);
  return task && task->lives;
}

bool SimulatedKernel::interrupt(pid_t tid) {
  Task* const task = find(tid);
  if (!task || !task->lives) return false;
  return task->interrupted = true;
}

void SimulatedKernel::listen(pid_t) { FAIL("nothing stops a group here"); }

void SimulatedKernel::resume(pid_t tid, Resume how, int signal) {
  Task* const task = stopped(tid);
  if (!task) return;
  const Stop stop = *std::exchange(task->stop, {});
  task->reported = false;
  task->steps = how == Resume::step;
  if (const auto* exiting = std::get_if<Exiting>(&stop)) {
    task->reports_exit = false;
    end(*task, exiting->end);
    return;
  }
  const auto number = static_cast<int64_t>(task->regs.orig_rax), result = static_cast<int64_t>(task->regs.rax);
  switch (task->at) {
    case Task::At::entry:
      task->stops_at_exit = how == Resume::to_syscall_exit;
      if (number < 0) {  // it is skipped
        task->at = Task::At::returning;
        come_out_of_tier(*task);
      } else {
        task->at = Task::At::inside;
        task->begun = false;
        task->caught_before = task->process->caught;
        ++calls_;
        log(*task, is_exit(number) ? Logged::What::end : Logged::What::entry, static_cast<int>(number));
      }
      break;
    case Task::At::inside:
      task->stops_at_exit = how == Resume::to_syscall_exit;
      break;
    case Task::At::exit:
      number < 0 ? come_out(*task, SYS_rt_sigreturn, 0) : come_out(*task, static_cast<int>(number), result);
      task->at = Task::At::returning;
      break;
    case Task::At::returning:
      come_out_of_tier(*task);
      if (const auto* was = std::get_if<SignalStop>(&stop)) note_taken(*task, was->signal);  // the tracer knows it now
      if (signal != 0) handle_signal(*task, task->siginfo);
      break;
    case Task::At::user:
      break;
  }
  check_alone(*task);
}

// The task stops at the exit of a call, or where one was that the tier had begun.
void SimulatedKernel::come_out(Task& task, int number, int64_t result) {
  log(task, Logged::What::exit, number, result);
  // A signal to the process wakes one thread, and another one may take it. The tracer cannot tell it from one that was
  // sent to that thread.
  task.sleeps_on |= task.woken_to_handle && starts_again(result);
  task.woken_to_handle = false;
  task.owes_handler = number != SYS_rt_sigreturn && result == -EINTR && task.process->caught == task.caught_before;
}

// The tracer has made a call that the tier has begun into one that stops.
void SimulatedKernel::come_out_of_tier(Task& task) {
  if (!task.served.in_kernel || task.process->executes_tier(task.regs.rip)) return;
  log_entry_in_tier(task);
  const bool again = task.regs.rip == task.served.site;
  come_out(task, task.served.number, again ? kErestartNoHand : static_cast<int64_t>(task.regs.rax));
  task.served = {};
}

std::string SimulatedKernel::describe() const {
  static constexpr const char* kWhere[] = {"in user code", "at the entry of", "in", "at the exit of",
                                           "on its way out of"};
  std::string all;
  for (const auto& [tid, task] : tasks_) {
    all += fmt::format("{} of unit {}: {} {} call {}; ", tid, task->process->unit,
                       !task->lives ? "has ended"
                       : task->stop ? "stopped"
                                    : "runs",
                       kWhere[static_cast<int>(task->at)], static_cast<int64_t>(task->regs.orig_rax));
  }
  return all;
}

// Whether it may run user code without another stop. In the tier a call does, unless it has been taken from it.
bool SimulatedKernel::runs_user_code(const Task& task) {
  if (!task.lives || task.stop) return false;
  if (task.served.in_kernel) return task.process->tier->owns_slot(task.regs, task.served);
  return task.at == Task::At::returning || task.at == Task::At::user;
}

void SimulatedKernel::check_alone(const Task& task) const {
  if (!runs_user_code(task)) return;
  for (const auto& [tid, other] : tasks_) {
    const bool both = runs_user_code(*other) && other.get() != &task && other->process->unit == task.process->unit;
    REQUIRE_MESSAGE(!both, fmt::format("{} and {} run at a time", task.tid, tid));
  }
}

// What others do while a thread sleeps in the tier comes after the entry of its call.
void SimulatedKernel::log(const Task& task, Logged::What what, int number, int64_t result) {
  for (const auto& [tid, other] : tasks_) {
    if (other.get() != &task && other->process->unit == task.process->unit) log_entry_in_tier(*other);
  }
  logs_[task.process->unit].push_back({what, task.tid, number, result});
}

// The call that the tier has begun is like one that has stopped from now on.
void SimulatedKernel::log_entry_in_tier(Task& task) {
  if (!task.served.in_kernel || std::exchange(task.served.entry_logged, true)) return;
  logs_[task.process->unit].push_back({Logged::What::entry, task.tid, task.served.number});
}

// ---- Getting on

bool SimulatedKernel::advance_any() {
  std::vector<Task*> able;
  for (const auto& [tid, task] : tasks_) {
    if (!task->stop && task->lives) able.push_back(task.get());
  }
  std::shuffle(able.begin(), able.end(), random_);
  return std::any_of(able.begin(), able.end(), [&](Task* task) { return advance(*task); });
}

bool SimulatedKernel::advance(Task& task) {
  if (task.stop || !task.lives) return false;
  now_ = now() + std::chrono::microseconds(below(100));
  switch (task.at) {
    case Task::At::user:
      compute(task);
      return true;
    case Task::At::inside:
      return continue_call(task);
    case Task::At::returning:
      return_to_user(task);
      return true;
    case Task::At::entry:
    case Task::At::exit:
      break;  // it is stopped there
  }
  return false;
}

void SimulatedKernel::compute(Task& task) {
  Process& process = *task.process;
  process.cpu_ns += 1000 + below(100'000);
  if (process.cpu_ns >= process.wakes_at_ns) {
    process.wakes_at_ns = UINT64_MAX;
    wake_at_ = now_;
  }
  user_regs_struct& regs = task.regs;
  const uint64_t after = regs.rip % kPlace;
  const bool in_tier = process.executes_tier(regs.rip);
  if (task.interrupted || is_signalled(task)) {
    if (after != 0 && !in_tier) regs.rip += below(kPlace - after);
    task.at = Task::At::returning;
    return;
  }
  if (in_tier) return step_in_tier(task);
  if (regs.rip == task.loop_end && task.loops > 0 && !task.steps && static_cast<int64_t>(regs.rax) <= 0) {
    --task.loops;
    regs.rip -= kSyscallSize;
    regs.rax = task.looped;
    return;
  }
  if (after != 0) {
    regs.rip += task.steps ? 1 : kPlace - after;
    if (regs.rip % kPlace == 0) regs.rax = static_cast<uint64_t>(next_call(task));
    if (std::exchange(task.steps, false)) {
      task.siginfo = {};
      task.siginfo.si_signo = SIGTRAP;
      task.siginfo.si_code = TRAP_TRACE;
      task.stop = SignalStop{SIGTRAP};
      task.at = Task::At::returning;
    }
    return;
  }
  const bool stops = std::exchange(task.served.stops_here, false);
  if (process.tier && process.tier->slot() && is_replaced(regs.rip) && !stops) return process.tier->jump_to(regs);
  enter(task);
  task.at = Task::At::entry;
  task.stop = SyscallEntry{};
}

// What the processor does at a syscall instruction.
void SimulatedKernel::enter(Task& task) {
  user_regs_struct& regs = task.regs;
  regs.orig_rax = regs.rax;
  regs.rax = static_cast<uint64_t>(-ENOSYS);
  regs.rip += kSyscallSize;
  regs.rcx = regs.rip;
  regs.r11 = regs.eflags;
}

void SimulatedKernel::step_in_tier(Task& task) {
  using Step = SimulatedTier::Step;
  // The recorder may take the call for one that sleeps as soon as it has a number.
  if (!task.served.in_kernel) task.caught_before = task.process->caught;
  switch (task.process->tier->step(task.regs, task.served, now_)) {
    case Step::on:
      break;
    case Step::call:
      enter(task);
      task.at = Task::At::inside;
      task.begun = task.stops_at_exit = false;
      break;
    case Step::report:
      enter(task);
      task.at = Task::At::entry;
      task.stop = SyscallEntry{};
      break;
    case Step::served:
      ++served_calls_;
      log(task, Logged::What::entry, task.served.number);
      log(task, Logged::What::exit, task.served.number, static_cast<int64_t>(task.process->tier->slot()->regs.rax));
      break;
  }
}

// The call at the place that it has come to: sets its arguments.
int SimulatedKernel::next_call(Task& task) {
  user_regs_struct& regs = task.regs;
  regs.rdi = regs.rsi = regs.rdx = regs.r10 = regs.r8 = regs.r9 = 0;
  if (regs.rip >= kHandler) {
    if (one_in(2)) return SYS_getppid;
    regs.rsp += sizeof(uint64_t);  // its return address
    return SYS_rt_sigreturn;
  }
  const bool borrows = task.process->unit != task.process->pid;  // its parent waits for it
  if (task.calls_left == 0) {
    regs.rdi = below(3);
    return borrows || one_in(4) ? SYS_exit_group : SYS_exit;
  }
  --task.calls_left;
  if (births_left_ > 0 && one_in(3)) {
    --births_left_;
    const uint64_t kind = borrows ? 0 : below(4);
    if (kind == 0) return SYS_fork;
    if (kind == 1) return SYS_vfork;
    regs.rdi = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    return SYS_clone;
  }
  if (task.process->tier && one_in(6)) {
    if (one_in(3)) {
      regs.rdi = regs.rdx = 8;
      regs.rsi = kStack;
      return SYS_write;
    }
    if (long_results_ && one_in(3)) {
      regs.rdi = kStack;
      regs.rsi = gate::kRingSize / 3;
      return SYS_getrandom;
    }
  }
  switch (below(6)) {
    case 0:
    case 1:
      regs.rdx = regs.r10 = below(5);  // ms
      task.looped = one_in(3) ? SYS_epoll_wait : SYS_poll;
      task.loops = regs.rdx == 0 ? below(kMostLoops) : 0;
      task.loop_end = regs.rip + kSyscallSize;
      return static_cast<int>(task.looped);
    case 2:
      if (borrows) return SYS_getppid;
      regs.rdi = ~0ull;
      return SYS_wait4;
    case 3:
      return one_in(4) ? SYS_pause : SYS_getppid;
    default:
      return SYS_getppid;
  }
}

void SimulatedKernel::begin_call(Task& task) {
  if (!makes_task(task.regs.orig_rax)) REQUIRE_EQ(task.signal_mask, task.own_mask);
  switch (task.regs.orig_rax) {
    case SYS_exit:
      end(task, {static_cast<int>(task.regs.rdi), 0});
      return;
    case SYS_exit_group:
      end_all(*task.process, {static_cast<int>(task.regs.rdi), 0});
      return;
    case SYS_fork:
    case SYS_vfork:
    case SYS_clone:
      is_signalled(task) ? end_call(task, kErestartNoIntr) : give_birth(task);
      return;
    case SYS_rt_sigreturn:
      leave_handler(task);
      return;
    case SYS_poll:
      task.until = now() + std::chrono::milliseconds(task.regs.rdx);
      return;
    case SYS_epoll_wait:
      task.until = now() + std::chrono::milliseconds(task.regs.r10);
      return;
    case SYS_pause:
    case SYS_wait4:
    case SYS_restart_syscall:
      return;
    case SYS_getrandom:
      end_call(task, static_cast<int64_t>(task.regs.rsi));
      return;
    default:
      end_call(task, 1);
  }
}

// False if it sleeps.
bool SimulatedKernel::continue_call(Task& task) {
  if (!std::exchange(task.begun, true)) {
    begin_call(task);
    return true;
  }
  const auto number = static_cast<int64_t>(task.regs.orig_rax);
  if (makes_task(task.regs.orig_rax)) {
    const auto child = processes_.find(task.waits_for);
    if (child != processes_.end() && !child->second->ending) return false;
    end_call(task, task.result);
    return true;
  }
  if (number == SYS_wait4) {
    auto& children = task.process->children;
    const auto gone = std::find_if(children.begin(), children.end(), [&](pid_t pid) { return processes_[pid]->ended; });
    if (gone != children.end() || children.empty()) {
      end_call(task, children.empty() ? -ECHILD : *gone);
      if (!children.empty()) children.erase(gone);
      return true;
    }
  } else if (number != SYS_pause && now() >= task.until) {
    end_call(task, 0);
    return true;
  }
  if (!task.interrupted && !is_signalled(task)) return false;
  switch (number) {
    case SYS_wait4:
      end_call(task, kErestartSys);
      return true;
    case SYS_pause:
      end_call(task, kErestartNoHand);
      return true;
    case SYS_epoll_wait:
      task.woken_to_handle = handles_next(task);
      end_call(task, -EINTR);
      return true;
    default:
      end_call(task, kErestartBlock);
      return true;
  }
}

void SimulatedKernel::end_call(Task& task, int64_t result) {
  task.regs.rax = static_cast<uint64_t>(result);
  task.at = task.stops_at_exit ? Task::At::exit : Task::At::returning;
  if (task.stops_at_exit) task.stop = SyscallExit{};
}

void SimulatedKernel::give_birth(Task& task) {
  Process& process = *task.process;
  const auto number = task.regs.orig_rax;
  Process* home = &process;
  if (number != SYS_clone) {
    const pid_t pid = next_pid_;
    const pid_t unit = number == SYS_fork ? pid : process.unit;
    home = (processes_[pid] = std::make_unique<Process>(pid, process.pid, unit)).get();
    const bool same_memory = number == SYS_vfork;
    if (process.tier) home->tier = same_memory ? process.tier : std::make_shared<SimulatedTier>(*process.tier);
    process.children.push_back(pid);
  }
  Task& child = add(*home);
  const auto calls_left = child.calls_left;
  child.regs = task.regs;
  child.regs.rax = 0;
  child.signal_mask = task.signal_mask;
  child.own_mask = task.own_mask;
  child.frames = task.frames;
  child.calls_left = number == SYS_vfork ? std::min(calls_left, 3u) : calls_left;
  child.stop = Interrupted{};
  task.waits_for = number == SYS_vfork ? home->pid : 0;
  task.result = child.tid;
  task.stop = Birth{child.tid};
}

// ---- Signals

bool SimulatedKernel::is_signalled(Task& task) {
  size_t index = 0;
  return queue_with_next(task, index);
}

bool SimulatedKernel::handles_next(Task& task) {
  size_t index = 0;
  const auto* const queue = queue_with_next(task, index);
  return queue && (kAllCaught & bit_of((*queue)[index].si_signo));
}

// Where the next signal that the task does not block is; null if there is none.
std::deque<siginfo_t>* SimulatedKernel::queue_with_next(Task& task, size_t& index) {
  for (auto* const queue : {&task.pending, &task.process->pending}) {
    for (index = 0; index < queue->size(); ++index) {
      if (!(task.signal_mask & bit_of((*queue)[index].si_signo))) return queue;
    }
  }
  return nullptr;
}

void SimulatedKernel::return_to_user(Task& task) {
  if (std::exchange(task.interrupted, false)) {
    task.stop = Interrupted{};
    return;
  }
  size_t index = 0;
  if (auto* const queue = queue_with_next(task, index)) {
    task.siginfo = (*queue)[index];
    queue->erase(queue->begin() + static_cast<ptrdiff_t>(index));
    note_taken(task, task.siginfo.si_signo);
    task.stop = SignalStop{task.siginfo.si_signo};
    return;
  }
  const bool taken = task.process->caught != task.caught_before;  // by another thread meanwhile
  REQUIRE_MESSAGE((!task.owes_handler || taken), fmt::format("{} was interrupted by nothing", task.tid));
  task.owes_handler = false;
  REQUIRE_MESSAGE(!task.sleeps_on, fmt::format("{} sleeps on, though a handler has run", task.tid));
  user_regs_struct& regs = task.regs;
  const auto result = static_cast<int64_t>(regs.rax);
  if (static_cast<int64_t>(regs.orig_rax) >= 0 && starts_again(result)) {
    regs.rax = result == kErestartBlock ? SYS_restart_syscall : regs.orig_rax;
    regs.rip -= kSyscallSize;
  }
  regs.orig_rax = ~0ull;
  task.at = Task::At::user;
}

void SimulatedKernel::note_taken(const Task& task, int signal) {
  if ((kAllCaught & bit_of(signal)) && task.siginfo.si_code != SI_TKILL) ++task.process->caught;
}

// The tracer has let the signal through.
void SimulatedKernel::handle_signal(Task& task, siginfo_t info) {
  if (task.signal_mask & bit_of(info.si_signo)) {
    task.pending.push_front(info);
    return;
  }
  if (!(kAllCaught & bit_of(info.si_signo))) return;  // it is ignored
  user_regs_struct& regs = task.regs;
  REQUIRE_MESSAGE(!task.process->executes_tier(regs.rip), fmt::format("{}: a handler begins in the tier", task.tid));
  const auto result = static_cast<int64_t>(regs.rax);
  if (static_cast<int64_t>(regs.orig_rax) >= 0 && starts_again(result)) {
    const bool again = result == kErestartNoIntr || (result == kErestartSys && info.si_signo != kCaught);
    regs.rax = again ? regs.orig_rax : static_cast<uint64_t>(-EINTR);
    if (again) regs.rip -= kSyscallSize;
  }
  regs.orig_rax = ~0ull;
  if (info.si_signo == kQueued && info.si_code == SI_QUEUE) {
    REQUIRE_MESSAGE(info.si_value.sival_int == ++task.seen, fmt::format("{} was overtaken", info.si_value.sival_int));
  }
  task.owes_handler = task.sleeps_on = false;
  task.frames.push_back({regs, task.own_mask});
  task.signal_mask = task.own_mask |= bit_of(info.si_signo);
  regs.rsp -= kFrame;
  regs.rip = kHandler + kSyscallSize;
  log(task, Logged::What::signal, info.si_signo);
  if (!std::exchange(task.steps, false)) return;
  task.siginfo = {};
  task.siginfo.si_signo = task.siginfo.si_code = SIGTRAP;
  task.stop = SignalStop{SIGTRAP};
}

void SimulatedKernel::leave_handler(Task& task) {
  REQUIRE_MESSAGE(!task.frames.empty(), "returns from no handler");
  const Task::Frame frame = task.frames.back();
  task.frames.pop_back();
  REQUIRE_EQ(task.regs.rsp, frame.regs.rsp - kFrame + sizeof(uint64_t));
  task.regs = frame.regs;
  task.signal_mask = task.own_mask = frame.mask;
  end_call(task, static_cast<int64_t>(task.regs.rax));
}

void SimulatedKernel::queue(Process& process, Task* task, const siginfo_t& info) {
  auto& queue = task ? task->pending : process.pending;
  const auto same = [&](const siginfo_t& other) { return other.si_signo == info.si_signo; };
  if (info.si_signo < kFirstRealTime && std::any_of(queue.begin(), queue.end(), same)) return;
  queue.push_back(info);
}

// From outside, or by a timer.
void SimulatedKernel::send_something() {
  std::vector<Task*> living;
  for (const auto& [tid, task] : tasks_) {
    if (task->lives && !task->process->ending) living.push_back(task.get());
  }
  if (living.empty()) return;
  Task& task = *living[below(living.size())];
  siginfo_t info{};
  switch (below(4)) {
    case 0:
      info.si_signo = kQueued;
      info.si_code = SI_QUEUE;
      for (auto more = below(3);; --more) {
        info.si_value.sival_int = ++task.sent;
        queue(*task.process, &task, info);
        if (more == 0) return;
      }
    case 1:
      info.si_signo = kIgnored;
      break;
    case 2:
      info.si_signo = kCaught;
      break;
    default:
      info.si_signo = kRestarting;
      info.si_code = SI_KERNEL;
  }
  queue(*task.process, nullptr, info);
}

bool SimulatedKernel::send(pid_t pid, int signal) {
  const auto found = processes_.find(pid);
  if (found == processes_.end() || found->second->ended) return false;
  siginfo_t info{};
  info.si_signo = signal;
  info.si_pid = getpid();
  queue(*found->second, nullptr, info);
  return true;
}

bool SimulatedKernel::send(pid_t, pid_t tid, int signal) {
  Task* const task = find(tid);
  if (!task || !task->lives) return false;
  siginfo_t info{};
  info.si_signo = signal;
  info.si_code = SI_TKILL;
  info.si_pid = getpid();
  queue(*task->process, task, info);
  return true;
}

// ---- Ends

void SimulatedKernel::end(Task& task, TraceeEnd end) {
  Process& process = *task.process;
  if (task.reports_exit) {
    task.stop = Exiting{end};
    task.reported = false;
    return;
  }
  task.lives = false;
  const bool last = std::none_of(process.tasks.begin(), process.tasks.end(), [](const Task* t) { return t->lives; });
  if (last) {
    process.ending = true;
    if (const auto parent = processes_.find(process.parent); parent != processes_.end() && !parent->second->ended) {
      siginfo_t info{};
      info.si_signo = SIGCHLD;
      info.si_code = CLD_EXITED;
      info.si_pid = process.pid;
      queue(*parent->second, nullptr, info);
    }
    if (process.pid == kFirstPid) root_end_ = end;
  }
  // A leader's end is reported after those of the others, and is that of the last one (synchronize_group_exit(),
  // kernel/exit.c).
  const bool waits = task.tid == process.pid && process.tasks.size() > 1;
  task.end = Gone{end};
  task.stop = waits ? std::nullopt : task.end;
  task.reported = false;
  Task& leader = *process.tasks.front();
  if (last && leader.tid == process.pid) leader.end = Gone{end};
}

void SimulatedKernel::end_all(Process& process, TraceeEnd how) {
  const std::vector<Task*> tasks = process.tasks;
  for (Task* const task : tasks) {
    if (task->lives) end(*task, how);
  }
}

// ---- What a tracer asks

SignalMasks SimulatedKernel::signal_masks(pid_t tid) {
  const Task* const task = find(tid);
  if (!task || task->process->ending) return {};  // a leader that has ended still tells, as long as others live
  SignalMasks masks;
  masks.blocked = task->signal_mask;
  masks.caught = kAllCaught;
  for (const siginfo_t& info : task->pending) masks.pending |= bit_of(info.si_signo);
  for (const siginfo_t& info : task->process->pending) masks.pending |= bit_of(info.si_signo);
  return masks;
}

Result<Memory> SimulatedKernel::open_memory(pid_t pid) {
  const auto found = processes_.find(pid);
  if (found == processes_.end() || found->second->ended) return Error{"it has no memory"};
  if (!found->second->tier) return Memory(pid, std::make_shared<Code>());
  return Memory(pid, found->second->tier->memory());
}

bool SimulatedKernel::wake_when_used(pid_t pid, std::chrono::nanoseconds cpu) {
  const auto found = processes_.find(pid);
  if (found == processes_.end()) return false;
  found->second->wakes_at_ns = found->second->cpu_ns + static_cast<uint64_t>(cpu.count());
  return true;
}

std::optional<uint64_t> SimulatedKernel::cpu_ns(pid_t pid) const {
  const auto found = processes_.find(pid);
  if (found == processes_.end() || found->second->ended) return {};
  return found->second->cpu_ns;
}

}  // namespace redrive
