#include "supervisor/live/kernel_model.h"

#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "interceptors/syscall_table.h"
#include "supervisor/live/call_effects.h"
#include "supervisor/tier/births.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

constexpr int kExitStatusShift = 8;
// Handlers that were left by siglongjmp(3) never return.
constexpr size_t kMostHandlers = 64;

// What fork(2) and clone(2) were asked for. What clone3(2) was asked for is in memory; a child that runs before its
// parent returns is one of vfork(2)'s kind, as posix_spawn(3) makes it, and any other a thread.
uint64_t birth_flags(const SyscallRow& row, const Event& call, bool returns_later) {
  if (row.special == Special::clone) return call.args[0];
  if (row.special == Special::vfork) return CLONE_VM | CLONE_VFORK;
  if (row.special == Special::fork || call.child_unit) return 0;
  return returns_later ? CLONE_VM | CLONE_VFORK : CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
}

bool replaces_program(const Event& call) {
  const SyscallRow* const row = find_row(call.number, call.args);
  return row && executes_program(*row, call.args) && call.result == 0;
}

}  // namespace

bool belong_together(const OpenObject& a, const OpenObject& b) {
  if (a.out_channel && a.out_channel == b.in_channel) return true;
  if (a.in_channel && a.in_channel == b.out_channel) return true;
  // All that a listening socket has accepted have one address: that of the other end tells them apart.
  const auto names = [](const OpenObject& one, const OpenObject& other) {
    const int domain = family_of(one.own_address);
    return !one.accepted_from && (domain == AF_INET || domain == AF_INET6) && one.own_address == other.peer_address;
  };
  return names(a, b) || names(b, a);
}

void KernelModel::start(UnitId unit, int32_t pid) {
  ProcessModel process;
  process.pid = pid;
  *process.directory = std::make_shared<const Directory>();
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    OpenObject& object = objects_.emplace_back();
    object.kind = OpenObject::Kind::inherited;
    object.number = number;
    (*process.descriptors)[number] = {objects_.size() - 1, false};
  }
  processes_[{unit, 0}] = std::move(process);
  threads_[{unit, 0}] = {};
  next_process_[unit] = 1;
}

const OngoingCall* KernelModel::call_of(ThreadName thread) const {
  const auto found = in_calls_.find(thread);
  return found == in_calls_.end() ? nullptr : &found->second;
}

std::optional<ObjectNumber> KernelModel::find(const OpenObject& object) const {
  const auto found = std::find_if(objects_.begin(), objects_.end(), [&](const OpenObject& each) {
    return each.kind == object.kind && each.made.event == object.made.event && each.end_number == object.end_number;
  });
  if (found == objects_.end()) return std::nullopt;
  return static_cast<ObjectNumber>(found - objects_.begin());
}

const OpenObject& KernelModel::same(const OpenObject& object) const {
  const auto found = find(object);
  return found ? objects_[*found] : object;
}

int socket_type(const KernelModel& model, const OpenObject& object) {
  constexpr uint64_t kTypes = 0xf;
  if (object.kind != OpenObject::Kind::socket) return 0;
  const OpenObject* origin = &object;  // an accepted one is of its listener's type
  while (origin->accepted_from) origin = &model.objects()[*origin->accepted_from];
  return static_cast<int>(origin->made.args[1] & kTypes);
}

ProcessModel* KernelModel::process_of(int32_t pid) {
  for (auto& [name, process] : processes_) {
    if (process.pid == pid && !process.waited_for) return &process;
  }
  for (auto& [name, thread] : threads_) {
    if (thread.tid == pid) return &processes_[{name.first, thread.process}];
  }
  return nullptr;
}

ThreadModel* KernelModel::thread_numbered(int32_t tid) {
  for (auto& [name, thread] : threads_) {
    if ((thread.tid ? thread.tid : processes_[{name.first, thread.process}].pid) == tid) return &thread;
  }
  return nullptr;
}

void KernelModel::take_signal(ThreadModel& thread, ProcessModel& process, int number) {
  signals_.received.push_back({now_, time_, number, process.pid, thread.tid ? thread.tid : process.pid});
  if (thread.pending.take(number) || process.pending.take(number)) return;
  // Nobody has sent it but the kernel.
  for (auto& [which, timer] : process.timers) {
    timer.signalled |= number == (which == ITIMER_REAL ? SIGALRM : which == ITIMER_VIRTUAL ? SIGVTALRM : SIGPROF);
  }
}

void KernelModel::apply(UnitId unit, EventIndex index, const Event& event) {
  const ThreadName name{unit, event.thread};
  now_ = {unit, index};
  time_ = event.time;
  switch (event.kind) {
    case EventKind::syscall:
      finish_call(unit, index, event);
      return repeat_calls(unit, index, event);
    case EventKind::entry:
      in_calls_[name] = {now_, event};
      if (event.child_unit || event.child_thread) bear(unit, index, event, true);
      if (event.fatal) end_thread(unit, event);
      return;
    case EventKind::exit: {
      auto entered = in_calls_.extract(name);
      if (entered.empty()) return;
      auto& [entry, call] = entered.mapped();
      const bool born = call.child_unit || call.child_thread;
      if (born) number_child(unit, call, static_cast<int32_t>(event.result));
      call.result = event.result;
      call.writes = event.writes;
      call.receive = event.receive;
      call.child_unit = born ? 0 : event.child_unit;
      call.child_thread = born ? 0 : event.child_thread;
      call.fatal = event.fatal;
      call.time = event.time;
      return finish_call(unit, entry.event, call);
    }
    case EventKind::signal:
      return deliver(unit, event);
    case EventKind::trap:
    case EventKind::preemption:
      return;
  }
}

// A series: after this event, its call was made again, or those of a cycle in turn (event.h).
void KernelModel::repeat_calls(UnitId unit, EventIndex index, const Event& event) {
  auto& recent = recent_[unit];
  if (recent.size() == kLongestCycle) recent.erase(recent.begin());
  recent.push_back(event);
  const size_t cycle = std::min<size_t>(event.cycle, recent.size());
  for (size_t turn = 0; event.repeat > 1 && turn < cycle; ++turn) {
    const Event call = recent[recent.size() - cycle + turn];
    if (!has_effects(call)) continue;
    for (uint64_t made = turn; made + 1 < event.repeat; made += cycle) {
      finish_call(unit, index - (cycle - 1 - turn), call);
    }
  }
}

void KernelModel::finish_call(UnitId unit, EventIndex index, const Event& call) {
  if (call.fatal) return end_thread(unit, call);
  if (call.child_unit || call.child_thread) {
    if (!replaces_program(call)) bear(unit, index, call, false);
  }
  if (replaces_program(call)) return execute(unit, call);
  ThreadModel& thread = threads_[{unit, call.thread}];
  ProcessModel& process = processes_[{unit, thread.process}];
  if (call.number == SYS_rt_sigreturn && !thread.masks_before_handlers.empty()) {
    thread.mask = std::move(thread.masks_before_handlers.back());
    thread.masks_before_handlers.pop_back();
    return;
  }
  if (call.result == kErestartRestartblock && call.number != SYS_restart_syscall) thread.interrupted = call.number;
  const bool begun = call.number == SYS_connect && call.result == -EINPROGRESS;
  if ((is_error(call.result) && !begun) || restarts(call.result)) return;
  apply_effects({*this, process, thread, call,
                 PastCall{{unit, index}, call.number, call.args, call.result, call.time.at_ns}, now_});
}

// ---- Births and ends

ProcessModel KernelModel::inherited(const ProcessName& parent, int32_t pid, uint64_t flags) {
  const ProcessModel& from = processes_.at(parent);
  ProcessModel child = from;
  child.pid = pid;
  child.parent = flags & CLONE_PARENT ? from.parent : std::optional(parent);
  if (!(flags & CLONE_FILES)) child.descriptors = std::make_shared<DescriptorTable>(*from.descriptors);
  if (!(flags & CLONE_FS)) {
    child.directory = std::make_shared<DirectoryRef>(*from.directory);
    child.umask = std::make_shared<int64_t>(*from.umask);
  }
  std::erase_if(child.repeated, [](const RepeatedCall& each) { return !each.in_children; });
  std::erase_if(child.lost, [](const auto& each) { return !each.second; });
  child.timers.clear();
  child.pending.clear();
  child.leads_session = false;
  child.may_be_stopped = child.has_continued = false;
  return child;
}

void KernelModel::bear(UnitId unit, EventIndex index, const Event& call, bool returns_later) {
  const SyscallRow* const row = find_row(call.number, call.args);
  if (!row || !is_birth(*row)) return;
  const uint64_t flags = birth_flags(*row, call, returns_later);
  const ThreadModel parent = threads_[{unit, call.thread}];
  const ProcessName parent_process{unit, parent.process};
  const auto number = static_cast<int32_t>(call.result);
  ThreadModel child;
  child.mask = parent.mask;
  child.masks_before_handlers = parent.masks_before_handlers;
  child.name = parent.name;
  child.repeated = parent.repeated;
  std::erase_if(child.repeated, [](const RepeatedCall& each) { return !each.in_children; });
  child.born = PastCall{{unit, index}, call.number, call.args, call.result, call.time.at_ns};
  if (!(flags & CLONE_VM) || flags & CLONE_VFORK) child.alternate_stack = parent.alternate_stack;
  if (row->special == Special::clone && flags & CLONE_CHILD_CLEARTID) child.clear_tid = call.args[3];
  if (flags & CLONE_THREAD) {
    child.process = parent.process;
    child.tid = number;
    threads_[{unit, call.child_thread}] = std::move(child);
    return;
  }
  const ProcessName name = call.child_unit ? ProcessName{call.child_unit, 0} : ProcessName{unit, next_process_[unit]++};
  if (call.child_unit) {
    next_process_[call.child_unit] = 1;
    signals_.births[call.child_unit] = {unit, index};
  }
  child.process = name.second;
  processes_[name] = inherited(parent_process, number, flags);
  threads_[{name.first, call.child_unit ? 0 : call.child_thread}] = std::move(child);
}

// The call that made a child has returned after the child had run.
void KernelModel::number_child(UnitId unit, const Event& call, int32_t number) {
  const auto thread = threads_.find({unit, call.child_thread});
  const ProcessName parent{unit, threads_[{unit, call.thread}].process};
  if (thread != threads_.end() && !call.child_unit && thread->second.process == parent.second) {
    thread->second.tid = number;
    return;
  }
  for (auto& [name, process] : processes_) {
    if (process.parent == parent && process.pid == 0) process.pid = number;
  }
}

// The process begins another program; one that ran on its parent's memory becomes a unit.
void KernelModel::execute(UnitId unit, const Event& call) {
  ThreadModel thread = threads_[{unit, call.thread}];
  const ProcessName before{unit, thread.process};
  const ProcessName now = call.child_unit ? ProcessName{call.child_unit, 0} : before;
  std::erase_if(threads_,
                [&](const auto& entry) { return entry.first.first == unit && entry.second.process == before.second; });
  if (call.child_unit) {
    processes_[now] = std::move(processes_[before]);
    processes_.erase(before);
    next_process_[now.first] = 1;
    thread.process = 0;
  }
  ProcessModel& process = processes_[now];
  process.descriptors = std::make_shared<DescriptorTable>(*process.descriptors);
  std::erase_if(*process.descriptors, [](const auto& entry) { return entry.second.close_on_exec; });
  for (auto& [signal, action] : process.actions) action.program_changed = true;
  for (auto* const repeated : {&process.repeated, &thread.repeated}) {
    std::erase_if(*repeated, [](const RepeatedCall& each) { return !each.in_programs; });
  }
  thread.tid = 0;
  thread.alternate_stack.reset();
  thread.name.reset();
  thread.robust_list = thread.clear_tid = 0;
  thread.masks_before_handlers.clear();
  threads_[{now.first, call.child_unit ? 0 : call.thread}] = std::move(thread);
}

void KernelModel::end_thread(UnitId unit, const Event& call) {
  const ProcessName process{unit, threads_[{unit, call.thread}].process};
  in_calls_.erase({unit, call.thread});
  const auto status = static_cast<int32_t>(call.args[0] & 0xff) << kExitStatusShift;
  if (call.number == SYS_exit_group) return end_process(process, status);
  threads_.erase({unit, call.thread});
  const bool others = std::any_of(threads_.begin(), threads_.end(), [&](const auto& entry) {
    return entry.first.first == unit && entry.second.process == process.second;
  });
  if (!others) end_process(process, call.number == SYS_exit ? status : SIGKILL);
}

void KernelModel::end_process(const ProcessName& name, int32_t status) {
  std::erase_if(threads_, [&](const auto& entry) {
    return entry.first.first == name.first && entry.second.process == name.second;
  });
  ProcessModel& process = processes_[name];
  process.ended = true;
  process.wait_status = status;
  process.descriptors = std::make_shared<DescriptorTable>();
  if (!process.parent) return;
  const auto parent = processes_.find(*process.parent);
  if (parent == processes_.end()) return;
  constexpr int kSignal = 0x7f;
  PendingSignal ended{SIGCHLD, CLD_EXITED, process.pid, status >> kExitStatusShift, {}};
  if (status & kSignal) {
    ended.code = CLD_KILLED;
    ended.status = status & kSignal;
  }
  parent->second.pending.add(ended);
  note_signal(SIGCHLD, parent->second.pid, false, process.pid);
}

void KernelModel::note_wait(int32_t pid) {
  signals_.waits.push_back({now_, pid});
  if (ProcessModel* const child = process_of(pid)) child->waited_for = true;
}

void KernelModel::deliver(UnitId unit, const Event& signal) {
  ThreadModel& thread = threads_[{unit, signal.thread}];
  const ProcessName name{unit, thread.process};
  ProcessModel& process = processes_[name];
  take_signal(thread, process, signal.number);
  if (signal.fatal) return end_process(name, signal.number);
  auto& before = thread.masks_before_handlers;
  if (before.size() == kMostHandlers) before.erase(before.begin());
  before.push_back(thread.mask);
  MaskChange change;
  change.handled = signal.number;
  const auto action = process.actions.find(signal.number);
  if (action != process.actions.end()) change.action = action->second.call;
  thread.mask.push_back(change);
}

}  // namespace redrive
