#include "supervisor/record/attacher.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "base/procfs.h"
#include "base/text.h"
#include "supervisor/record/checkpoint_copies.h"
#include "supervisor/record/checkpointer.h"
#include "supervisor/record/ends.h"
#include "supervisor/record/file_copies.h"
#include "supervisor/record/image_worker.h"
#include "supervisor/record/intervals.h"
#include "supervisor/record/native_state.h"
#include "supervisor/record/outside_changes.h"
#include "supervisor/record/private_views.h"
#include "supervisor/record/signal_delivery.h"
#include "supervisor/record/state_capture.h"
#include "supervisor/record/stop_handler.h"
#include "supervisor/record/stop_queue.h"
#include "supervisor/record/thread_control.h"
#include "supervisor/record/tracees.h"
#include "supervisor/record/turns.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 2s;  // with threads that do not stop

Error cannot(pid_t pid, const std::string& why) {
  return Error{fmt::format("process {} cannot be attached to: {}", describe_process(pid), why)};
}

}  // namespace

Result<void> Attacher::attach(pid_t pid) {
  ASSIGN_OR_RETURN(auto tree, attachable_tree(pid));
  for (const Attachable& process : tree) native_.prepare(process);
  ends_.set_root(pid);
  auto attached = seize_all(pid);
  if (attached) {
    attached = make_units(tree);
    if (attached) attached = take_all();
    if (!attached) let_go();
  } else {
    release_seized();
  }
  if (!attached) return attached;
  for (const auto& [id, unit] : tracees_.units()) begin_interval(*unit);
  for (const auto& [id, unit] : tracees_.units()) turns_.schedule(*unit);
  return {};
}

// ---- Stopping threads that run freely

Result<void> Attacher::seize_all(pid_t root) {
  // A thread that is not stopped yet may make others. Those of traced ones are traced, and are found when the birth
  // is reported; those of others are found here.
  for (;;) {
    ASSIGN_OR_RETURN(const size_t found, seize_new(root));
    if (found == 0) break;
  }
  // Stops on another processor would take much longer.
  placement_.stay_home();
  for (const auto& [tid, seized] : seized_) placement_.send(tid, {});
  stopped_at_ = tracer_.now();
  for (const auto& [tid, seized] : seized_) {
    tracer_.interrupt(tid);
    running_.insert(tid);
  }
  TRY(await_stops());
  if (!seized_.contains(root)) return cannot(root, "it has just ended");
  for (const auto& [tid, seized] : seized_) restart_woken(tid);
  return {};
}

// Traces those that were not traced. Returns how many there were.
Result<size_t> Attacher::seize_new(pid_t root) {
  size_t found = 0;
  for (const pid_t pid : process_tree(root)) {
    for (const pid_t tid : proc_threads(pid)) {
      if (seized_.contains(tid)) continue;
      if (const auto seized = tracer_.seize(tid); !seized) {
        const ProcValues status = proc_status(tid);
        const bool ended = status.text("State").empty() || status.text("State").starts_with('Z');
        if (ended) continue;
        const bool ours = status.number("TracerPid") == static_cast<uint64_t>(getpid());
        if (!ours) return cannot(pid, seized.error().message);
      }
      add_seized(tid);
      ++found;
    }
  }
  return found;
}

void Attacher::add_seized(pid_t tid) {
  Seized& seized = seized_[tid];
  seized.pid = static_cast<pid_t>(proc_status(tid).number("Tgid"));
  sched_getaffinity(tid, sizeof seized.processors, &seized.processors);
}

Result<void> Attacher::await_stops() {
  const auto until = tracer_.now() + kPatience;
  while (!running_.empty()) {
    if (tracer_.now() > until) {
      const pid_t tid = *running_.begin();
      return cannot(seized_[tid].pid,
                    fmt::format("its thread {} does not stop: it waits for a device, or for a child of "
                                "vfork(2) to begin its program (try again)",
                                tid));
    }
    const Waited waited = tracer_.wait_for_any();
    if (const auto* stopped = std::get_if<Stopped>(&waited)) {
      TRY(take_stop(*stopped));
    } else if (std::holds_alternative<NoTracees>(waited)) {
      return Error{"the process has ended"};
    }
  }
  return {};
}

Result<void> Attacher::take_stop(const Stopped& stopped) {
  const auto& [tid, stop] = stopped;
  if (is<Gone>(stop)) {
    seized_.erase(tid);
    running_.erase(tid);
    return {};
  }
  if (is<Exiting>(stop)) {
    tracer_.resume(tid, Resume::cont);
    return {};
  }
  if (!seized_.contains(tid)) add_seized(tid);
  if (const auto* birth = std::get_if<Birth>(&stop)) {
    if (birth->child && !seized_.contains(birth->child)) {
      add_seized(birth->child);
      seized_[birth->child].processors = seized_[tid].processors;
      running_.insert(birth->child);
    }
    tracer_.resume(tid, Resume::to_syscall_exit);
    return {};
  }
  if (is<GroupStop>(stop)) return cannot(seized_[tid].pid, "it was stopped meanwhile");
  if (is<Exec>(stop)) return cannot(seized_[tid].pid, "it is executing another program (try again)");
  if (const auto* signalled = std::get_if<SignalStop>(&stop); signalled && !stepping_.erase(tid)) {
    siginfo_t info{};
    tracer_.get_siginfo(tid, info);
    const SignalMasks masks = tracer_.signal_masks(tid);
    if (masks.caught & bit_of(signalled->signal)) {
      stepping_.insert(tid);
      restart_woken(tid);
      tracer_.resume(tid, Resume::step, signalled->signal);
      return {};
    }
    if (!is_ignored(masks, signalled->signal)) signals_[tid] = info;
  }
  running_.erase(tid);
  return {};
}

// The kernel fails some calls in which a thread is interrupted (ptrace(2), BUGS; see WokenCalls). It is told to enter
// them again, unless the call has closed what it was for.
void Attacher::restart_woken(pid_t tid) {
  user_regs_struct regs;
  if (!tracer_.get_regs(tid, regs)) return;
  const bool failed = static_cast<int64_t>(regs.orig_rax) >= 0 && static_cast<int64_t>(regs.rax) == -EINTR;
  if (!failed || regs.orig_rax == SYS_close) return;
  regs.rax = static_cast<uint64_t>(kErestartNoHandler);
  tracer_.set_regs(tid, regs);
}

// The tracer's end lets those run that have not stopped.
void Attacher::release_seized() {
  for (const auto& [tid, seized] : seized_) {
    sched_setaffinity(tid, sizeof seized.processors, &seized.processors);
    const auto signal = signals_.find(tid);
    if (!running_.contains(tid)) tracer_.detach(tid, signal == signals_.end() ? 0 : signal->second.si_signo);
  }
}

// ---- Making units of them

Result<void> Attacher::make_units(const std::vector<Attachable>& tree) {
  std::vector<pid_t> pids;
  for (const pid_t pid : process_tree(ends_.root())) {
    if (seized_.contains(pid)) pids.push_back(pid);
  }
  for (const auto& group : groups(tree, pids)) {
    Unit& unit = tracees_.add_unit({}, group.front());
    for (const pid_t pid : group) add_process(unit, pid, tree);
  }
  return {};
}

// Processes that have mapped the same object, and could change it, are one unit.
std::vector<std::vector<pid_t>> Attacher::groups(const std::vector<Attachable>& tree, const std::vector<pid_t>& pids) {
  std::map<pid_t, pid_t> leaders;
  const std::function<pid_t(pid_t)> leader = [&](pid_t pid) {
    return leaders[pid] == pid ? pid : leader(leaders[pid]);
  };
  std::map<Object, std::vector<pid_t>> users;
  std::set<Object> changeable;
  for (const Attachable& process : tree) changeable.insert(process.changeable.begin(), process.changeable.end());
  for (const pid_t pid : pids) {
    leaders[pid] = pid;
    const auto mappings = read_mappings(pid);
    if (!mappings) continue;
    for (const Mapping& mapping : *mappings) {
      if (!mapping.shared) continue;
      const Object object{mapping.device, mapping.inode};
      if (mapping.protection & PROT_WRITE) changeable.insert(object);
      users[object].push_back(pid);
    }
  }
  for (const auto& [object, those] : users) {
    if (!changeable.contains(object)) continue;
    for (const pid_t pid : those) leaders[leader(pid)] = leader(those.front());
  }
  std::vector<std::vector<pid_t>> found;
  std::map<pid_t, size_t> places;
  for (const pid_t pid : pids) {
    const auto [place, fresh] = places.try_emplace(leader(pid), found.size());
    if (fresh) found.emplace_back();
    found[place->second].push_back(pid);
  }
  return found;
}

void Attacher::add_process(Unit& unit, pid_t pid, const std::vector<Attachable>& tree) {
  Process& process = tracees_.add_process(unit, pid);
  process.command = command_of(pid);
  std::set<Object> changeable;
  for (const Attachable& each : tree) {
    changeable.insert(each.changeable.begin(), each.changeable.end());
    if (each.pid != pid) continue;
    process.not_copied = each.not_copied;
    process.maps_growing = each.maps_growing;
    process.opens_memory = each.opens_memory;
  }
  for (const auto& [tid, seized] : seized_) {
    if (seized.pid != pid) continue;
    Thread& thread = tracees_.add_thread(process, tid);
    thread.processors = seized.processors;
    const auto signal = signals_.find(tid);
    if (signal != signals_.end()) thread.signals.hold(signal->second, tracer_.now());
  }
  note_mappings(process, changeable);
}

void Attacher::note_mappings(Process& process, const std::set<Object>& changeable) {
  const auto mappings = read_mappings(process.pid);
  if (!mappings) return;
  MappedFiles files(process.pid);
  std::set<Object> code;
  for (const Mapping& mapping : *mappings) {
    if (mapping.protection & PROT_EXEC) code.emplace(mapping.device, mapping.inode);
  }
  for (const Mapping& mapping : *mappings) {
    const Object place{mapping.device, mapping.inode};
    if (!mapping.shared) {
      const MappedFile* const file = mapping.inode && !code.contains(place) ? files.of(mapping) : nullptr;
      if (file) private_views_.add(process, file->version, mapping.name);
      continue;
    }
    MappedObject& object = objects_.of(mapping);
    process.objects.insert(object.id);
    const Fd file = open_object(process.pid, mapping);
    object.has_file |= file && !mapping.name.starts_with("/SYSV") && !mapping.name.starts_with("/dev/zero");
    if (changeable.contains(place) || (mapping.protection & PROT_WRITE)) {
      object.writable = object.writable_mapping = process.shares_memory = true;
      private_views_.report_seen_writes(object);
    } else if (const auto copy = files_.file_of(files, mapping)) {
      object.copy = *copy;
    }
    if (!object.has_file) continue;
    objects_.watch(object, own_descriptor_path(file.get()));
    outside_.expect_writers();
  }
}

Result<void> Attacher::take_all() {
  for (const auto& [id, unit] : tracees_.units()) {
    for (const auto& process : unit->processes) {
      for (Thread* const thread : threads_of(*process)) {
        if (const auto settled = native_.settle(*thread); !settled)
          return cannot(process->pid, settled.error().message);
      }
      if (const auto taken = native_.take(*process); !taken) return cannot(process->pid, taken.error().message);
    }
  }
  return {};
}

// The memory at this moment is the unit's first image. Its threads wait for their turns.
void Attacher::begin_interval(Unit& unit) {
  for (const auto& [serial, thread] : unit.threads) {
    if (!tracer_.get_regs(thread->tid, thread->entry)) continue;
    thread->xstate = tracer_.get_xstate(thread->tid);
    thread->state = Thread::Ready{Thread::Stop::continued};
    unit.baton.queue(*thread);
  }
  if (unit.threads.empty()) return;
  Thread& trigger = *unit.threads.begin()->second;
  Process& process = *trigger.process;
  intervals_.begin(unit, CheckpointKind::image, process, 0);
  const bool copied = unit.processes.size() == 1 && !forks_into_namespace(process.pid);
  auto job = copied ? capture_.take(unit, trigger, false, true) : Result<ImageJob>(Error{""});
  pid_t copy = -1;
  if (job) {
    const user_regs_struct regs = trigger.entry;
    const auto made = calls_.call_at(caller_of(trigger), process.vdso_patch->syscall_instruction(), regs, SYS_clone,
                                     {CLONE_FILES, 0, 0, 0, 0, CheckpointCopies::kMark}, &copy);
    if (made) tracer_.set_regs(trigger.tid, regs);
    if (!copies_.give(*job, copy, trigger)) job = Error{"it could not be copied"};
  }
  if (!job) {
    checkpointer_.store_now(unit, trigger, nullptr);
  } else {
    job->interval = unit.interval;
    checkpointer_.add_image(unit, std::move(*job), true);
  }
  unit.interval_record.pause_ns = static_cast<uint64_t>((tracer_.now() - stopped_at_).count());
  writer_.add(unit.interval_record);
}

// ---- Letting go

bool Attacher::can_stop() {
  checkpointer_.stop();
  if (images_.copies_alive() > 0) return false;
  const auto is_amid = [](const auto& entry) {
    const Unit& unit = *entry.second;
    const bool waits = std::any_of(unit.threads.begin(), unit.threads.end(),
                                   [](const auto& other) { return other.second->tracer != 0; });
    return waits || births_pending(unit) || unit.joins || !unit.joining.empty() || !unit.writers.empty();
  };
  return std::none_of(tracees_.units().begin(), tracees_.units().end(), is_amid);
}

void Attacher::stop_all() {
  copies_.collect();
  control_.park_all();
  std::set<pid_t> interrupted;
  for (;;) {
    for (const auto& [id, unit] : tracees_.units()) {
      while (unit->baton.is_held() && control_.is_parked(*unit->baton.holder())) turns_.give_up(*unit);
    }
    bool all = true;
    for (const auto& [tid, thread] : tracees_.threads()) {
      if (thread->exited || control_.is_parked(*thread)) continue;
      all = false;
      if (thread->is<Thread::Ready>() || thread->is<Thread::Starting>() || !interrupted.insert(tid).second) continue;
      thread->woken |= !thread->is<Thread::User>();
      tracer_.interrupt(tid);
    }
    if (all || !stops_.fill()) return;
    if (const auto next = stops_.take()) {
      interrupted.erase(next->tid);
      handler_.handle(*next);
    }
  }
}

void Attacher::let_go() {
  std::set<pid_t> pids;
  for (const auto& [tid, thread] : tracees_.threads()) pids.insert(thread->process->pid);
  for (const pid_t pid : pids) {
    const auto& threads = tracees_.threads();
    const auto alive = std::find_if(threads.begin(), threads.end(),
                                    [&](const auto& entry) { return entry.second->process->pid == pid; });
    if (alive != threads.end()) native_.let_go(*alive->second->process);
  }
}

}  // namespace redrive
