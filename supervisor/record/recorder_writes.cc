// Calls that reach into the memory of processes. What they write into another one's (process_vm_writev(2), write(2)
// and its like to proc_pid_mem(5), or to a file of which that has a private view) a replay must find at an event of the
// process that they wrote to: the kernel makes the call while nobody runs user code in that process's unit, and before
// anybody does again, what was written becomes an event there. What they read shows code as it was before instructions
// were replaced.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "base/procfs.h"
#include "supervisor/record/descriptor_info.h"
#include "supervisor/record/recorder.h"
#include "supervisor/tier/registers.h"

namespace redrive {
namespace {

// The namespace that a process's own numbers of others are of.
std::string pid_namespace(pid_t tid) { return proc_namespace(tid, "pid"); }

}  // namespace

// The recorded thread that another one calls by this number; null if there is none.
Thread* Recorder::named(const Thread& caller, pid_t number) {
  const std::string space = pid_namespace(caller.tid);
  if (space == pid_namespace(getpid())) return find(number);
  for (const auto& [tid, thread] : threads_) {
    if (pid_in_own_namespace(tid) == number && pid_namespace(tid) == space) return thread.get();
  }
  return nullptr;
}

// Whether nobody in the unit can run user code before the recorder lets it.
bool Recorder::at_rest(const Unit& unit) {
  return unit.at_event || std::none_of(unit.threads.begin(), unit.threads.end(),
                                       [](const auto& entry) { return entry.second->run == Thread::Run::user; });
}

// The unit of the process into whose memory the call writes. Null if that is not recorded, or is the thread's own and
// written by a descriptor.
Unit* Recorder::written_unit(const Thread& thread) {
  const SyscallRow& row = *thread.row;
  Thread* target = nullptr;
  if (row.special == Special::write_process) {
    target = named(thread, static_cast<pid_t>(thread.args[0]));
  } else if (row.file_change == FileChange::writes && thread.process->opens_memory) {
    const pid_t pid = memory_behind(*thread.process, thread.args[static_cast<size_t>(row.changed_arg)]);
    if (pid && pid != thread.process->pid) target = find(pid);
  }
  return target ? target->process->unit : nullptr;
}

// At the entry of such a call: makes it, or waits until the unit whose memory it would change is at an event.
void Recorder::enter_write(Thread& thread, Unit* unit) {
  thread.run = Thread::Run::syscall;
  if (!unit || unit == thread.process->unit || at_rest(*unit)) {
    make_write(thread);
    return;
  }
  unit->writers.push_back(&thread);
  Thread* const holder = unit->baton.holder();
  if (!holder) return;
  ask_to_stop(*holder);
  if (holder->run == Thread::Run::user) tracer_.interrupt(holder->tid);
}

// The unit is at an event.
void Recorder::let_write(Unit& unit) {
  unit.at_event = true;
  while (!unit.writers.empty()) {
    Thread& writer = *unit.writers.front();
    unit.writers.pop_front();
    make_write(writer);
  }
  unit.at_event = false;
}

void Recorder::make_write(Thread& thread) {
  open_call(thread, Memory::snapshot(thread.process->memory));
  resume(thread, Resume::to_syscall_exit);
  if (wait_stop(thread.tid)) handle_syscall_exit(thread);
}

// Where what the thread's call has written into this process's memory goes: the call's own event if both share it, else
// the next event there.
std::vector<MemoryWrite>& Recorder::writes_into(Process& target, const Thread& writer, Event& event) {
  return target.memory_id == writer.process->memory_id ? event.writes : target.written;
}

// Such a call has ended: what it has written is an output of its own, or waits for an event of the process's.
void Recorder::note_write(Thread& thread, int64_t result, Event& event) {
  constexpr uint64_t kMostVectors = 1024;
  Thread* const target = result > 0 ? named(thread, static_cast<pid_t>(thread.args[0])) : nullptr;
  if (!target) return;
  Process& process = *target->process;
  std::vector<MemoryWrite>& writes = writes_into(process, thread, event);
  std::vector<iovec> vectors(std::min(thread.args[4], kMostVectors));
  if (!thread.process->memory.read(thread.args[3], vectors.data(), vectors.size() * sizeof(iovec))) return;
  auto left = static_cast<uint64_t>(result);
  for (const iovec& vector : vectors) {
    MemoryWrite write{reinterpret_cast<Address>(vector.iov_base),
                      std::min<uint64_t>(vector.iov_len, left),
                      MemoryWrite::Kind::data,
                      {}};
    if (!write.length) continue;
    left -= write.length;
    write.data.resize(write.length);
    if (process.memory.read(write.address, write.data.data(), write.length)) {
      writes.push_back(std::move(write));
    } else {
      add_unsure(*process.unit, "what process_vm_writev has written could not be read");
    }
  }
}

// The memory that a call, which has read `length` bytes, has read of `source`; empty if it is none of a recorded
// process.
std::vector<AddressRange> Recorder::read_by(const Thread& thread, uint64_t length, const Process** source) {
  const Process& process = *thread.process;
  const auto& args = thread.args;
  const auto up_to = [&](uint64_t end) { return std::vector<AddressRange>{{end - length, end}}; };
  const Thread* owner = nullptr;
  std::vector<AddressRange> ranges;
  switch (thread.row->number) {
    case SYS_process_vm_readv: {
      constexpr uint64_t kMostVectors = 1024;
      owner = named(thread, static_cast<pid_t>(args[0]));
      std::vector<iovec> vectors(std::min(args[4], kMostVectors));
      if (!process.memory.read(args[3], vectors.data(), vectors.size() * sizeof(iovec))) return {};
      for (const iovec& vector : vectors) {
        const auto start = reinterpret_cast<Address>(vector.iov_base);
        ranges.push_back({start, start + vector.iov_len});
      }
      break;
    }
    case SYS_pread64:
    case SYS_preadv:
    case SYS_preadv2:
    case SYS_read:
    case SYS_readv: {
      owner = find(memory_behind(process, args[0]));
      const bool placed = thread.row->number != SYS_read && thread.row->number != SYS_readv;
      const bool at_position = !placed || static_cast<int64_t>(args[3]) < 0;  // preadv2(2)
      if (owner) ranges = up_to(at_position ? DescriptorInfo::read(process.pid, args[0]).position : args[3] + length);
      break;
    }
    default:
      break;
  }
  if (!owner) return {};
  *source = owner->process;
  return ranges;
}

// Such a call has put what it has read into `spans_`.
void Recorder::show_own_code(Thread& thread, uint64_t length) {
  const Process* source = nullptr;
  const auto ranges = read_by(thread, length, &source);
  const Gate* const tier = ranges.empty() ? nullptr : source->tier();
  const bool shown = tier && std::any_of(ranges.begin(), ranges.end(),
                                         [&](const auto& range) { return tier->touches(range.start, range.end); });
  if (!shown) return;
  const Memory& memory = thread.process->memory;
  Bytes copy;
  for (const auto& span : spans_) {
    copy.resize(copy.size() + span.length);
    if (!memory.read(span.address, &copy[copy.size() - span.length], span.length)) return;
  }
  size_t at = 0;
  for (const auto& range : ranges) {
    const size_t size = std::min<size_t>(range.end - range.start, copy.size() - at);
    tier->undo_patches(range.start, {copy.data() + at, size});
    at += size;
  }
  at = 0;
  for (const auto& span : spans_) {
    memory.write(span.address, copy.data() + at, span.length);
    at += span.length;
  }
}

// The thread is about to run user code, with these registers, or to make the call before which it stands: what others
// have written into its memory becomes an event, like a signal that has no handler.
void Recorder::add_written(Thread& thread, const user_regs_struct& regs, SignalPoint where) {
  Process& process = *thread.process;
  Event event;
  event.kind = EventKind::signal;
  event.thread = thread.serial;
  event.ip = regs.rip;
  event.args[0] = static_cast<uint64_t>(where);
  event.writes = std::exchange(process.written, {});
  event.registers = RegisterFile{as_bytes(regs), {}};
  process.unit->log.add(std::move(event));
}

}  // namespace redrive
