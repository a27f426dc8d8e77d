#include "supervisor/record/stops/foreign_memory.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/procfs.h"
#include "base/text.h"
#include "checkpoint/address_space.h"
#include "supervisor/record/memory/descriptor_info.h"
#include "supervisor/record/stops/call_events.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/stop_handler.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"

namespace redrive {

pid_t ForeignMemory::memory_behind(const Thread& thread, uint64_t fd) const {
  char name[64] = {};
  if (readlink(descriptor_path(thread.tid, fd).c_str(), name, sizeof name - 1) < 0) return 0;
  const std::filesystem::path path(name);  // /proc/PID/mem or /proc/PID/task/TID/mem
  const std::vector<std::string> parts(path.begin(), path.end());
  const bool of_process = parts.size() == 4 && parts[3] == "mem";
  const bool of_thread = parts.size() == 6 && parts[3] == "task" && parts[5] == "mem";
  if ((!of_process && !of_thread) || parts[1] != "proc") return 0;
  return static_cast<pid_t>(parse_number(parts[2]).value_or(0));
}

void ForeignMemory::note_opened(const Thread& thread, uint64_t fd) const {
  thread.process->opens_memory |= memory_behind(thread, fd) != 0;
}

void ForeignMemory::note_written_memory(Thread& thread, uint64_t written, Event& event) {
  Process& process = *thread.process;
  const SyscallRow& row = *thread.call.row;
  if (row.file_change != FileChange::writes) return;
  const uint64_t fd = thread.call.args[static_cast<size_t>(row.changed_arg)];
  const pid_t pid = memory_behind(thread, fd);
  if (!pid) return;
  Thread* const owner = pid == process.pid ? &thread : tracees_.find(pid);
  if (!owner) return;
  Process& target = *owner->process;
  const Address place = end_of_write(thread, written, 0) - written;
  MemoryWrite write{place, written, MemoryWrite::Kind::data, Bytes(written)};
  if (target.memory.read(place, write.data.data(), written)) {
    writes_into(target, thread, event).push_back(std::move(write));
  } else {
    findings_.add_unsure(*target.unit, "what was written into its memory could not be read (/proc/PID/mem)");
  }
}

uint64_t end_of_write(const Thread& thread, uint64_t length, uint64_t size) {
  const SyscallRow& row = *thread.call.row;
  const Process& process = *thread.process;
  const auto descriptor = DescriptorInfo::read(thread.tid, thread.call.args[static_cast<size_t>(row.changed_arg)]);
  const uint64_t flags = row.number == SYS_pwritev2 ? thread.call.args[5] : 0;
  constexpr uint64_t kDoNotAppend = 0x20;  // RWF_NOAPPEND
  const bool appends = (descriptor.flags & O_APPEND) && !(flags & kDoNotAppend);
  if (appends || (flags & RWF_APPEND)) return size;
  uint64_t end = descriptor.position;
  if (row.change_offset < 0) return end;
  const auto at = static_cast<size_t>(row.change_offset);
  const uint64_t offset = thread.call.args[at];
  if (row.args[at].kind == ArgKind::val) {
    if (static_cast<int64_t>(offset) >= 0) end = offset + length;
  } else if (offset) {
    process.memory.read(offset, &end, sizeof end);
  }
  return end;
}

Unit* ForeignMemory::written_unit(const Thread& thread) {
  const SyscallRow& row = *thread.call.row;
  Thread* target = nullptr;
  if (row.special == Special::write_process) {
    target = tracees_.named(thread, static_cast<pid_t>(thread.call.args[0]));
  } else if (row.file_change == FileChange::writes && thread.process->opens_memory) {
    const pid_t pid = memory_behind(thread, thread.call.args[static_cast<size_t>(row.changed_arg)]);
    if (pid && pid != thread.process->pid) target = tracees_.find(pid);
  }
  return target ? target->process->unit : nullptr;
}

void ForeignMemory::enter_write(Thread& thread, Unit* unit) {
  thread.state = Thread::Syscall{};
  if (!unit || unit == thread.process->unit || at_rest(*unit)) {
    make_write(thread);
    return;
  }
  unit->writers.push_back(&thread);
  Thread* const holder = unit->baton.holder();
  if (!holder) return;
  ask_to_stop(*holder);
  if (holder->is<Thread::User>()) tracer_.interrupt(holder->tid);
}

void ForeignMemory::let_write(Unit& unit) {
  unit.at_event = true;
  while (!unit.writers.empty()) {
    Thread& writer = *unit.writers.front();
    unit.writers.pop_front();
    make_write(writer);
  }
  unit.at_event = false;
}

void ForeignMemory::make_write(Thread& thread) {
  events_.open_call(thread, Memory::snapshot(thread.process->memory));
  control_.resume(thread, Resume::to_syscall_exit);
  if (ends_.wait_stop(thread.tid)) handler_.syscall_exit(thread);
}

void ForeignMemory::note_write(Thread& thread, int64_t result, Event& event) {
  constexpr uint64_t kMostVectors = 1024;
  Thread* const target = result > 0 ? tracees_.named(thread, static_cast<pid_t>(thread.call.args[0])) : nullptr;
  if (!target) return;
  Process& process = *target->process;
  std::vector<MemoryWrite>& writes = writes_into(process, thread, event);
  std::vector<iovec> vectors(std::min(thread.call.args[4], kMostVectors));
  if (!thread.process->memory.read(thread.call.args[3], vectors.data(), vectors.size() * sizeof(iovec))) return;
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
      findings_.add_unsure(*process.unit, "what process_vm_writev has written could not be read");
    }
  }
}

// The memory that a call which has read `length` bytes has read, and in `source` the process that it belongs to; empty
// if that is not a recorded process.
std::vector<AddressRange> ForeignMemory::read_by(const Thread& thread, uint64_t length, const Process** source) {
  const Process& process = *thread.process;
  const auto& args = thread.call.args;
  const auto up_to = [&](uint64_t end) { return std::vector<AddressRange>{{end - length, end}}; };
  const Thread* owner = nullptr;
  std::vector<AddressRange> ranges;
  switch (thread.call.row->number) {
    case SYS_process_vm_readv: {
      constexpr uint64_t kMostVectors = 1024;
      owner = tracees_.named(thread, static_cast<pid_t>(args[0]));
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
      owner = tracees_.find(memory_behind(thread, args[0]));
      const bool placed = thread.call.row->number != SYS_read && thread.call.row->number != SYS_readv;
      const bool at_position = !placed || static_cast<int64_t>(args[3]) < 0;  // preadv2(2)
      if (owner) ranges = up_to(at_position ? DescriptorInfo::read(thread.tid, args[0]).position : args[3] + length);
      break;
    }
    default:
      break;
  }
  if (!owner) return {};
  *source = owner->process;
  return ranges;
}

void ForeignMemory::show_own_code(Thread& thread, uint64_t length, std::span<const Span> outputs) {
  const Process* source = nullptr;
  const auto ranges = read_by(thread, length, &source);
  const Gate* const tier = ranges.empty() ? nullptr : source->tier();
  const bool shown = tier && std::any_of(ranges.begin(), ranges.end(),
                                         [&](const auto& range) { return tier->touches(range.start, range.end); });
  if (!shown) return;
  const Memory& memory = thread.process->memory;
  Bytes copy;
  for (const auto& span : outputs) {
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
  for (const auto& span : outputs) {
    memory.write(span.address, copy.data() + at, span.length);
    at += span.length;
  }
}

}  // namespace redrive
