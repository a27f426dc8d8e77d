#include "supervisor/record/checkpoints/state_capture.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "checkpoint/address_space.h"
#include "checkpoint/stub.h"
#include "supervisor/record/memory/file_copies.h"
#include "supervisor/record/memory/private_views.h"
#include "supervisor/record/memory/ranges.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// Whether the process may have mappings of which their flags tell more than /proc/PID/maps.
bool has_flags(const Process& process, const std::vector<Mapping>& mappings) {
  const auto stack = std::find_if(mappings.begin(), mappings.end(), [](const Mapping& m) { return m.is_stack(); });
  const bool split = stack != mappings.begin() && stack != mappings.end() && std::prev(stack)->end == stack->start;
  return split || process.maps_growing || !process.not_copied.empty();
}

}  // namespace

Result<ImageJob> StateCapture::take(Unit& unit, Thread& trigger, bool at_entry, bool shared_only,
                                    const KnownMappings& known) {
  for (;;) {
    ImageJob job;
    const auto captured = capture_into(job, unit, trigger, at_entry, shared_only, known);
    const bool again = leave_out_killed(unit);
    if (trigger.left_out) return Error{"the program was killed"};
    if (again) continue;
    if (!captured) return captured.error();
    unit.first_joined_thread = unit.first_joined_process = ~0u;
    return job;
  }
}

Result<void> StateCapture::capture_into(ImageJob& job, Unit& unit, Thread& trigger, bool at_entry, bool shared_only,
                                        const KnownMappings& known) {
  job.unit = unit.id;
  ASSIGN_OR_RETURN(job.state, capture_state(unit, trigger, at_entry, known));
  for (const auto& process : unit.processes) {
    if (!process->tier()) continue;
    for (const auto& site : process->tier()->sites) job.patches.push_back({process->serial, site.start, site.original});
  }
  return capture_pages(unit, shared_only, job);
}

// Leaves out processes that were killed, and have no memory any more. Returns whether there were any that were not
// known.
bool StateCapture::leave_out_killed(Unit& unit) {
  bool any = false;
  const Process* seen = nullptr;
  for (const auto& [serial, thread] : unit.threads) {
    if (thread->exited || thread->left_out || seen == thread->process) continue;
    if (tracer_.has_memory(thread->tid)) {
      seen = thread->process;
    } else {
      any = thread->left_out = true;
    }
  }
  return any;
}

// Waits until a thread whose registers are to be read has stopped: one that was born, or one that sleeps in a served
// call (its extended registers were not read when it fell asleep) and is stopped here. The stop is handled in its turn.
void StateCapture::await_stop(const Thread& thread) {
  if (stops_.holds(thread.tid)) return;
  if (thread.sleeps_in_served_call() && !tracer_.interrupt(thread.tid)) return;
  stops_.await(thread.tid);
}

// The state of a process apart from its threads, of which there must be some. `owner`: the process on whose memory it
// runs; null if that is its own.
Result<ProcessState> StateCapture::capture_process(Process& process, const ProcessSerial* owner,
                                                   const KnownMappings& known) {
  ProcessState saved;
  saved.process = process.serial;
  saved.pid = process.pid;
  saved.brk = process.brk;
  saved.stack_limit = stack_limit(process.shown_as());
  if (owner) {
    saved.memory_of = *owner;
    return saved;
  }
  saved.descriptors = *process.descriptors;
  const auto known_of = known.find(process.pid);
  if (known_of != known.end()) {
    saved.mappings = *known_of->second.mappings;
  } else {
    ASSIGN_OR_RETURN(saved.mappings, read_mappings(process.shown_as()));
  }
  if (const Gate* gate = process.tier()) {
    std::erase_if(saved.mappings, [&](const Mapping& m) { return gate->owns(m.start, m.end); });
  }
  if (process.vdso_patch) {
    const Mapping vdso = process.vdso_patch->mapping();
    saved.mappings.insert(std::find_if(saved.mappings.begin(), saved.mappings.end(),
                                       [&](const Mapping& m) { return m.start > vdso.start; }),
                          vdso);
  }
  if (has_flags(process, saved.mappings)) TRY(note_flags(process.shown_as(), saved.mappings));
  MappedFiles asked(process.shown_as());
  MappedFiles& files = known_of != known.end() ? *known_of->second.files : asked;
  for (auto& mapping : saved.mappings) {
    const MappedObject* const object = mapping.shared ? objects_.find(mapping.device, mapping.inode) : nullptr;
    if (object) mapping.shared_object = object->id;
    if (object && object->writable) {
      if (object->has_file) mapping.object_size = object_size(process.shown_as(), mapping);
    } else if (object && object->copy) {
      mapping.file = object->copy;
    } else if (mapping.shared && is_sysv_segment(mapping.name)) {
      return Error{"it has left the IPC namespace of " + mapping.name + ", which it maps"};
    } else if (mapping.inode != 0) {
      ASSIGN_OR_RETURN(mapping.file, files_.file_of(files, mapping));
      if (!mapping.shared) private_views_.check(process, mapping, files.of(mapping)->version);
    }
  }
  return saved;
}

bool StateCapture::capture_thread(Thread& thread, bool entering, ThreadState& saved) {
  saved.thread = thread.serial;
  saved.process = thread.process->serial;
  saved.read_implies_exec = thread.read_implies_exec;
  saved.in_syscall = !entering && (thread.is_ready(Thread::Stop::exit) || thread.is<Thread::Blocked>());
  if (entering) {
    saved.regs = before_syscall(thread.entry);
    saved.xstate = tracer_.get_xstate(thread.tid);
    return !saved.xstate.empty();
  }
  if (saved.in_syscall) {
    if (thread.sleeps_in_served_call()) await_stop(thread);
    saved.regs = thread.entry;
    // A thread that has come out of the kernel is stopped: syscalls leave the extended state alone.
    const bool stopped = thread.is_ready(Thread::Stop::exit) || thread.sleeps_in_served_call();
    saved.xstate = stopped ? tracer_.get_xstate(thread.tid) : thread.xstate;
    return !stopped || !saved.xstate.empty();
  }
  if (thread.is<Thread::GroupStopped>() || thread.is_ready(Thread::Stop::continued)) {
    saved.regs = thread.entry;
    saved.xstate = thread.xstate;
    return true;
  }
  bool alive = control_.get_regs(thread, saved.regs);
  if (!alive && thread.is<Thread::Starting>()) {
    await_stop(thread);
    alive = control_.get_regs(thread, saved.regs);
  }
  if (alive) saved.xstate = tracer_.get_xstate(thread.tid);
  if (thread.call.hides_untraced) saved.regs.rdi |= CLONE_UNTRACED;  // as births_.start() will
  return alive;
}

Result<UnitState> StateCapture::capture_state(Unit& unit, Thread& trigger, bool at_entry, const KnownMappings& known) {
  UnitState state;
  state.trigger = trigger.serial;
  state.next_thread = unit.next_thread;
  state.next_process = unit.next_process;
  state.first_joined_thread = unit.first_joined_thread;
  state.first_joined_process = unit.first_joined_process;
  for (const auto& [serial, thread] : unit.threads) {
    if (thread->exited || thread->left_out) continue;
    ThreadState saved;
    const bool entering = thread == &trigger && at_entry;
    if ((thread->left_out = !capture_thread(*thread, entering, saved))) continue;
    state.threads.push_back(std::move(saved));
  }
  std::map<uint64_t, ProcessSerial> owners;  // of memory, by memory_id
  for (const auto& process : unit.processes) {
    if (std::none_of(state.threads.begin(), state.threads.end(),
                     [&](const ThreadState& saved) { return saved.process == process->serial; })) {
      continue;
    }
    const auto [owner, first] = owners.try_emplace(process->memory_id, process->serial);
    ASSIGN_OR_RETURN(auto saved, capture_process(*process, first ? nullptr : &owner->second, known));
    state.processes.push_back(std::move(saved));
  }
  return state;
}

namespace {

// The pages of objects that were read for one process, for others that show the same part.
class ReadObjects {
 public:
  // Between these two calls, the mapping is read.
  void begin(const Mapping& mapping, const ImageJob& job) {
    read_.try_emplace(key(mapping), Read{mapping.start, job.runs.size(), job.runs.size()});
  }
  void end(const Mapping& mapping, const ImageJob& job) { read_.at(key(mapping)).end = job.runs.size(); }
  // Adds it for another process. False if it was not read.
  bool add(uint32_t process, const Mapping& mapping, ImageJob& job) const {
    const auto found = read_.find(key(mapping));
    if (found == read_.end()) return false;
    const Read& read = found->second;
    for (size_t i = read.first; i < read.end; ++i) {
      ImageJob::Run run = job.runs[i];
      run.process = process;
      run.address = mapping.start + (run.address - read.start);
      job.runs.push_back(std::move(run));
    }
    return true;
  }

 private:
  using Key = std::array<uint64_t, 3>;
  static Key key(const Mapping& mapping) { return {mapping.shared_object, mapping.offset, mapping.length()}; }
  struct Read {
    Address start;
    size_t first, end;  // of the job's runs
  };
  std::map<Key, Read> read_;
};

}  // namespace

Result<void> StateCapture::capture_pages(Unit& unit, bool shared_only, ImageJob& job) {
  ReadObjects objects;
  for (const ProcessState& saved : job.state.processes) {
    const auto process = std::find_if(unit.processes.begin(), unit.processes.end(),
                                      [&](const auto& other) { return other->serial == saved.process; });
    const auto is_copied = [&](const Mapping& m) { return !meets_any(m, (*process)->not_copied); };
    const auto wanted = [&](const Mapping& m) {
      return m.shows_object() || (!m.shared_object && !(shared_only && is_copied(m)));
    };
    const auto take = [&](const Mapping& mapping, Address address, std::span<const uint8_t> pages) -> Result<void> {
      job.add(saved.process, mapping, address, pages, buffers_);
      return {};
    };
    ASSIGN_OR_RETURN(const PageTable table, PageTable::open((*process)->memory.pid()));
    for (const Mapping& mapping : saved.mappings) {
      if (!wanted(mapping)) continue;
      const bool shows = mapping.shows_object();
      if (shows && objects.add(saved.process, mapping, job)) continue;
      if (shows) objects.begin(mapping, job);
      TRY(read_runs((*process)->memory, mapping, table.stored_pages(mapping), take));
      if (shows) objects.end(mapping, job);
    }
  }
  return {};
}

}  // namespace redrive
