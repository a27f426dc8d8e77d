#include "supervisor/record/attach/attacher.h"

#include <fmt/format.h>
#include <linux/kcmp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "base/assert.h"
#include "checkpoint/stub.h"
#include "supervisor/record/checkpoints/image_worker.h"
#include "supervisor/record/checkpoints/intervals.h"
#include "supervisor/record/checkpoints/page_buffers.h"
#include "supervisor/record/kernel/stop_queue.h"
#include "supervisor/record/memory/file_copies.h"
#include "supervisor/record/memory/outside_changes.h"
#include "supervisor/record/memory/private_views.h"
#include "supervisor/record/memory/ranges.h"
#include "supervisor/record/stops/checkpoint_copies.h"
#include "supervisor/record/stops/checkpointer.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/native_state.h"
#include "supervisor/record/stops/stop_handler.h"
#include "supervisor/record/stops/turns.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"

namespace redrive {

Result<void> Attacher::attach(pid_t pid) {
  ASSIGN_OR_RETURN(auto tree, attachable_tree(pid));
  for (const Attachable& process : tree.processes) native_.prepare(process.pid, process.changeable);
  ends_.set_root(pid);
  prepare_buffers(tree);
  TRY(seizer_.stop_all(tree.roots));
  const auto looked = seizer_.threads().contains(pid) ? look_again(tree) : cannot_attach(pid, "it has just ended");
  if (!looked) {
    seizer_.release();
    return looked;
  }
  auto mapped = make_units(tree);
  if (const auto taken = take_all(); !taken) {
    let_go();
    return taken;
  }
  StateCapture::KnownMappings known;
  for (Mapped& each : mapped) known[each.process->pid] = {&each.process->mappings, &each.files};
  for (const auto& [id, unit] : tracees_.units()) begin_interval(*unit, known);
  for (const auto& [id, unit] : tracees_.units()) {
    unit->interval_record.pause_ns = static_cast<uint64_t>((tracer_.now() - seizer_.stopped_at()).count());
    writer_.add(unit->interval_record);
    turns_.schedule(*unit);
  }
  return {};
}

std::set<Attacher::Object> Attacher::changeable_in(const AttachableTree& tree) {
  std::set<Object> all;
  for (const Attachable& process : tree.processes) all.insert(process.changeable.begin(), process.changeable.end());
  return all;
}

// What they share is read while all are stopped. How much that is may change until then.
void Attacher::prepare_buffers(const AttachableTree& tree) {
  const std::set<Object> changeable = changeable_in(tree);
  std::set<Object> seen;
  uint64_t pages = 0;
  for (const Attachable& process : tree.processes) {
    const auto table = PageTable::open(process.pid);
    for (const Mapping& mapping : process.mappings) {
      const Object object{mapping.device, mapping.inode};
      if (!table || !mapping.shared || !changeable.contains(object) || !seen.insert(object).second) continue;
      for (const PageRun& run : table->stored_pages(mapping)) pages += run.pages;
    }
  }
  buffers_.prepare(pages * kPageSize);
}

// Now that all are stopped: what has changed since the tree was looked at, and processes that were born since then.
Result<void> Attacher::look_again(AttachableTree& tree) {
  std::set<pid_t> pids;
  for (const auto& [tid, seized] : seizer_.threads()) pids.insert(seized.pid);
  for (Attachable& known : tree.processes) {
    if (pids.erase(known.pid)) TRY(redrive::look_again(known));
  }
  for (const pid_t pid : pids) {
    ASSIGN_OR_RETURN(Attachable found, attachable(pid));
    tree.processes.push_back(std::move(found));
  }
  return {};
}

// Parents first, and whatever the list left out last.
std::vector<pid_t> Attacher::stopped_processes(const std::vector<pid_t>& roots) const {
  std::set<pid_t> stopped;
  for (const auto& [tid, seized] : seizer_.threads()) stopped.insert(seized.pid);
  std::vector<pid_t> processes;
  for (const pid_t pid : process_tree(roots)) {
    if (stopped.erase(pid)) processes.push_back(pid);
  }
  processes.insert(processes.end(), stopped.begin(), stopped.end());
  return processes;
}

std::vector<Attacher::Mapped> Attacher::make_units(const AttachableTree& tree) {
  std::set<Object> changeable = changeable_in(tree);
  std::vector<Mapped> mapped;
  for (const pid_t pid : stopped_processes(tree.roots)) {
    const auto found = std::find_if(tree.processes.begin(), tree.processes.end(),
                                    [&](const Attachable& process) { return process.pid == pid; });
    ASSERT(found != tree.processes.end());  // look_again() has added it
    for (const Mapping& mapping : found->mappings) {
      if (mapping.shared && (mapping.protection & PROT_WRITE)) changeable.emplace(mapping.device, mapping.inode);
    }
    mapped.push_back({&*found, MappedFiles(pid)});
  }
  for (const auto& group : groups(mapped, changeable)) {
    Unit& unit = tracees_.add_unit({}, group.front()->process->pid);
    for (Mapped* const each : group) {
      note_mappings(add_process(unit, *each->process), *each, changeable);
      if (!each->process->has_guards) continue;
      findings_.add_unsure(unit,
                           "it had guard pages (madvise(2), MADV_GUARD_INSTALL) before it was attached to, which "
                           "are ordinary memory in replays, also in those of its children");
    }
    if (tree.hidden < 0) continue;
    findings_.add_unsure(unit, fmt::format("its memory can be changed by process {}, into which redrive may not look, "
                                           "if they share any: attach as root",
                                           describe_process(tree.hidden)));
  }
  return mapped;
}

// Processes that have mapped the same object, and could change it, are one unit.
std::vector<std::vector<Attacher::Mapped*>> Attacher::groups(std::vector<Mapped>& mapped,
                                                             const std::set<Object>& changeable) {
  std::vector<size_t> leaders(mapped.size());
  const std::function<size_t(size_t)> leader = [&](size_t i) { return leaders[i] == i ? i : leader(leaders[i]); };
  std::map<Object, size_t> users;
  for (size_t i = 0; i < mapped.size(); ++i) {
    leaders[i] = i;
    for (const Mapping& mapping : mapped[i].process->mappings) {
      const Object object{mapping.device, mapping.inode};
      if (!mapping.shared || !changeable.contains(object)) continue;
      const auto [user, first] = users.try_emplace(object, i);
      if (!first) leaders[leader(i)] = leader(user->second);
    }
  }
  std::vector<std::vector<Mapped*>> found;
  std::map<size_t, size_t> places;
  for (size_t i = 0; i < mapped.size(); ++i) {
    const auto [place, fresh] = places.try_emplace(leader(i), found.size());
    if (fresh) found.emplace_back();
    found[place->second].push_back(&mapped[i]);
  }
  return found;
}

Process& Attacher::add_process(Unit& unit, const Attachable& found) {
  Process& process = tracees_.add_process(unit, found.pid);
  process.command = command_of(found.pid);
  process.not_copied = found.not_copied;
  process.maps_growing = found.maps_growing;
  process.opens_memory = found.opens_memory;
  std::vector<std::pair<pid_t, std::shared_ptr<FdCache>>> tables;  // each with a thread that has it
  for (const auto& [tid, seized] : seizer_.threads()) {
    if (seized.pid != found.pid) continue;
    const auto is_its = [tid = tid](const auto& table) {
      return syscall(SYS_kcmp, table.first, tid, KCMP_FILES, 0, 0) <= 0;
    };
    auto its = std::find_if(tables.begin(), tables.end(), is_its);
    if (its == tables.end()) its = tables.emplace(its, tid, std::make_shared<FdCache>());
    Thread& thread = tracees_.add_thread(process, tid, its->second);
    thread.processors = seized.processors;
    thread.read_implies_exec = read_implies_exec(tid);
    if (seized.signal) thread.signals.hold(*seized.signal, tracer_.now());
  }
  process.separate_tables = tables.size() > 1;
  return process;
}

void Attacher::note_mappings(Process& process, Mapped& mapped, const std::set<Object>& changeable) {
  const std::vector<Mapping>& mappings = mapped.process->mappings;
  MappedFiles& files = mapped.files;
  std::set<Object> code;
  for (const Mapping& mapping : mappings) {
    if (mapping.protection & PROT_EXEC) code.emplace(mapping.device, mapping.inode);
  }
  for (const Mapping& mapping : mappings) {
    const Object place{mapping.device, mapping.inode};
    if (!mapping.shared) {
      const MappedFile* const file = mapping.inode && !code.contains(place) ? files.of(mapping) : nullptr;
      if (file) private_views_.add(process, mapping, file->version);
      continue;
    }
    MappedObject& object = objects_.of(mapping);
    process.objects.insert(object.id);
    const Fd file = open_object(process.pid, mapping);
    object.has_file |= file && !is_shared_without_file(mapping.name);
    if (changeable.contains(place) || (mapping.protection & PROT_WRITE)) {
      object.writable = object.writable_mapping = process.shares_memory = true;
      private_views_.report_seen_writes(object);
    } else if (const auto copy = files_.file_of(files, mapping)) {
      object.copy = *copy;
    }
    if (!object.has_file) continue;
    struct stat info {};
    if (fstat(file.get(), &info) == 0) objects_.note_file(object, info.st_dev, info.st_ino);
    objects_.watch(object, own_descriptor_path(file.get()));
    outside_.expect_writers();
  }
}

Result<void> Attacher::take_all() {
  for (const auto& [id, unit] : tracees_.units()) {
    for (const auto& process : unit->processes) {
      for (Thread* const thread : threads_of(*process)) {
        if (const auto settled = native_.settle(*thread); !settled)
          return cannot_attach(process->pid, settled.error().message);
      }
      if (const auto taken = native_.take(*process); !taken) return cannot_attach(process->pid, taken.error().message);
    }
  }
  return {};
}

// The memory at this moment is the unit's first image. Its threads wait for their turns.
void Attacher::begin_interval(Unit& unit, const StateCapture::KnownMappings& known) {
  for (const auto& [serial, thread] : unit.threads) {
    if (!tracer_.get_regs(thread->tid, thread->entry)) continue;
    thread->xstate = tracer_.get_xstate(thread->tid);
    thread->state = Thread::Ready{Thread::Stop::continued};
    unit.baton.queue(*thread);
  }
  if (unit.threads.empty()) return;
  Thread& trigger = *unit.threads.begin()->second;
  intervals_.begin(unit, CheckpointKind::image, *trigger.process, 0);
  auto job = capture_.take(unit, trigger, false, true, known);
  if (job && copy_processes(unit, *job, known)) {
    job->interval = unit.interval;
    checkpointer_.add_image(unit, std::move(*job));
    return;
  }
  for (size_t i = 0; job && i < job->copies.size(); ++i) copies_.end(job->copies[i]);
  checkpointer_.store_now(unit, trigger, nullptr, known);
}

// All are stopped, so even processes that share memory can be copied one by one. False if one of them cannot be.
bool Attacher::copy_processes(Unit& unit, ImageJob& job, const StateCapture::KnownMappings& known) {
  const auto in_namespace = [](const auto& process) { return forks_into_namespace(process->pid); };
  if (std::any_of(unit.processes.begin(), unit.processes.end(), in_namespace)) return false;
  for (const auto& process : unit.processes) {
    const auto threads = threads_of(*process);
    if (threads.empty()) continue;
    Thread& thread = *threads.front();
    const user_regs_struct regs = thread.entry;
    pid_t copy = -1;
    const auto made = calls_.call_at(caller_of(thread), process->vdso_patch->syscall_instruction(), regs, SYS_clone,
                                     {CLONE_FILES, 0, 0, 0, 0, CheckpointCopies::kMark}, &copy);
    if (made) tracer_.set_regs(thread.tid, regs);
    const auto& mappings = *known.at(process->pid).mappings;
    if (!copies_.give(job, copy, thread) || !copies_all(*process, mappings, copy)) return false;
    job.copies.back().known_not_copied = process->not_copied;
  }
  return true;
}

// Whether the copy has all of the process's memory that is not known to be left out (madvise(2), MADV_DONTFORK).
bool Attacher::copies_all(const Process& process, const std::vector<Mapping>& mappings, pid_t copy) {
  const auto copied = mapped_ranges(copy);
  if (!copied) return false;
  std::set<Address> has;
  for (const AddressRange& range : *copied) has.insert(range.start);
  return std::all_of(mappings.begin(), mappings.end(), [&](const Mapping& mapping) {
    return has.contains(mapping.start) || meets_any(mapping, process.not_copied);
  });
}

// ---- Letting go

bool Attacher::can_stop() {
  checkpointer_.stop();
  if (images_.copies_alive().count > 0) return false;
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
      handler_.handle_amid(*next);
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
