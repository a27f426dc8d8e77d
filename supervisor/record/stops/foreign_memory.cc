#include "supervisor/record/stops/foreign_memory.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "checkpoint/address_space.h"
#include "supervisor/record/memory/descriptor_info.h"
#include "supervisor/record/stops/call_events.h"
#include "supervisor/record/stops/ends.h"
#include "supervisor/record/stops/stop_handler.h"
#include "supervisor/record/tracees/findings.h"
#include "supervisor/record/tracees/proc_file.h"
#include "supervisor/record/tracees/thread_control.h"
#include "supervisor/record/tracees/tracees.h"

namespace redrive {
namespace {

// The descriptors that a message has brought (unix(7), SCM_RIGHTS).
void add_passed(const Memory& memory, const msghdr& message, std::vector<uint64_t>& fds) {
  constexpr size_t kMost = 64 << 10;
  Bytes control(std::min<size_t>(message.msg_controllen, kMost));
  if (!memory.read(reinterpret_cast<Address>(message.msg_control), control.data(), control.size())) return;
  for (size_t at = 0; at + sizeof(cmsghdr) <= control.size();) {
    cmsghdr header;
    std::memcpy(&header, &control[at], sizeof header);
    const size_t end = at + std::min<size_t>(header.cmsg_len, control.size() - at);
    if (header.cmsg_level == SOL_SOCKET && header.cmsg_type == SCM_RIGHTS) {
      for (size_t place = at + CMSG_LEN(0); place + sizeof(int) <= end; place += sizeof(int)) {
        int fd;
        std::memcpy(&fd, &control[place], sizeof fd);
        fds.push_back(static_cast<uint64_t>(fd));
      }
    }
    at += std::max<size_t>(CMSG_ALIGN(end - at), sizeof(cmsghdr));
  }
}

// The files that the thread's call, which has succeeded, has given its process.
std::vector<uint64_t> descriptors_made(const Thread& thread, uint64_t result) {
  const SyscallRow& row = *thread.call.row;
  const Memory& memory = thread.process->memory;
  if (row.new_descriptor == NewDescriptor::file) return {result};
  std::vector<uint64_t> fds;
  for (size_t i = 0; i < row.args.size(); ++i) {
    const Address address = thread.call.args[i];
    if (msghdr one; row.args[i].kind == ArgKind::msghdr_out && memory.get(address, one)) {
      add_passed(memory, one, fds);
    } else if (row.args[i].kind == ArgKind::mmsghdr_out) {
      mmsghdr each;
      for (uint64_t n = 0; n < result && memory.get(address + n * sizeof each, each); ++n) {
        add_passed(memory, each.msg_hdr, fds);
      }
    }
  }
  return fds;
}

}  // namespace

Thread* ForeignMemory::owner_of(const Thread& thread, uint64_t fd) {
  const auto file = ProcFile::behind(thread.tid, fd, "mem");
  return file ? tracees_.shown_in(*file, file->process, thread) : nullptr;
}

void ForeignMemory::note_descriptors(Thread& thread, int64_t result) {
  if (result < 0) return;
  const auto is_memory = [&](uint64_t fd) { return ProcFile::behind(thread.tid, fd, "mem").has_value(); };
  const auto fds = descriptors_made(thread, static_cast<uint64_t>(result));
  if (std::none_of(fds.begin(), fds.end(), is_memory)) return;
  for (const auto& [tid, other] : tracees_.threads()) {
    if (other->fds != thread.fds) continue;
    other->process->opens_memory = true;
    if (other->process != thread.process) ask_to_stop(*other);
  }
}

void ForeignMemory::note_written_memory(Thread& thread, uint64_t written, Event& event) {
  const SyscallRow& row = *thread.call.row;
  if (row.file_change != FileChange::writes) return;
  const uint64_t fd = thread.call.args[static_cast<size_t>(row.changed_arg)];
  const Thread* const owner = owner_of(thread, fd);
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

namespace {

DescriptorInfo written_descriptor(const Thread& thread) {
  return DescriptorInfo::read(thread.tid, thread.call.args[static_cast<size_t>(thread.call.row->changed_arg)]);
}

bool appends(const Thread& thread, const DescriptorInfo& descriptor) {
  const uint64_t flags = thread.call.row->number == SYS_pwritev2 ? thread.call.args[5] : 0;
  constexpr uint64_t kDoNotAppend = 0x20;  // RWF_NOAPPEND
  return ((descriptor.flags & O_APPEND) && !(flags & kDoNotAppend)) || (flags & RWF_APPEND);
}

// Whether it names no place of its own.
bool writes_at_position(const Thread& thread) {
  const SyscallRow& row = *thread.call.row;
  if (row.change_offset < 0) return true;
  const auto at = static_cast<size_t>(row.change_offset);
  const uint64_t offset = thread.call.args[at];
  return row.args[at].kind == ArgKind::val ? static_cast<int64_t>(offset) < 0 : offset == 0;
}

}  // namespace

uint64_t end_of_write(const Thread& thread, uint64_t length, uint64_t size) {
  const auto descriptor = written_descriptor(thread);
  if (appends(thread, descriptor)) return size;
  uint64_t end = descriptor.position;
  if (writes_at_position(thread)) return end;
  const auto at = static_cast<size_t>(thread.call.row->change_offset);
  const uint64_t offset = thread.call.args[at];
  if (thread.call.row->args[at].kind == ArgKind::val) return offset + length;
  thread.process->memory.read(offset, &end, sizeof end);
  return end;
}

std::optional<uint64_t> position_written(const Thread& thread) {
  const auto descriptor = written_descriptor(thread);
  if (!writes_at_position(thread) || appends(thread, descriptor)) return {};
  return descriptor.position;
}

Unit* ForeignMemory::written_unit(const Thread& thread) {
  const SyscallRow& row = *thread.call.row;
  Thread* target = nullptr;
  if (row.special == Special::write_process) {
    target = tracees_.named(thread, static_cast<pid_t>(thread.call.args[0]));
  } else if (row.file_change == FileChange::writes && thread.process->opens_memory) {
    Thread* const owner = owner_of(thread, thread.call.args[static_cast<size_t>(row.changed_arg)]);
    if (owner && owner->process != thread.process) target = owner;
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
      owner = owner_of(thread, args[0]);
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
