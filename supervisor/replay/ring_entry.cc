#include "supervisor/replay/ring_entry.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "supervisor/tier/memory_calls.h"
#include "supervisor/tier/registers.h"

namespace redrive {

bool is_answered(const SyscallRow& row) { return row.in_process && row.special == Special::none; }

bool is_made(const SyscallRow& row) {
  switch (row.special) {
    case Special::mmap:
    case Special::munmap:
    case Special::mprotect:
    case Special::madvise:
    case Special::mremap:
    case Special::brk:
      return row.in_process;
    default:
      return false;
  }
}

SiteKind kind_of(const Event& event) {
  if (event.kind == EventKind::syscall) return SiteKind::syscall;
  switch (static_cast<Trap>(event.number)) {
    case Trap::rdtsc:
      return SiteKind::rdtsc;
    case Trap::rdtscp:
      return SiteKind::rdtscp;
    case Trap::cpuid:
      break;
  }
  return SiteKind::cpuid;
}

Address site_of(const Event& event) { return event.kind == EventKind::trap ? event.ip : event.ip - kSyscallSize; }

bool fits_ring(const Event& event, const SyscallRow* row, bool shows_sends) {
  if (event.kind == EventKind::trap) return true;
  if (event.kind != EventKind::syscall || !row) return false;
  if (event.fatal || event.child_unit || event.child_thread || event.registers || restarts(event.result)) return false;
  if (!event.changes.empty() || (!is_answered(*row) && !is_made(*row))) return false;
  // What is written behind the program's back, or may have been written before a call failed, may lie in memory that
  // the program cannot write to.
  const bool may_not_write = row->file_change != FileChange::none || event.result == -EFAULT;
  if (may_not_write && !event.writes.empty()) return false;
  if (makes_writable_code(static_cast<uint64_t>(event.number), event.args[2])) return false;
  if (shows_sends && row->traffic == Traffic::send) return false;
  return !stack_limit_set_by(event.number, event.args, event.result);
}

std::optional<uint64_t> put_entry(std::span<uint8_t> ring, uint64_t start, const Event& event, const SyscallRow* row,
                                  const RingEntry& entry) {
  uint64_t size = sizeof(gate::Expected) + entry.parts.size() * sizeof(gate::Part) +
                  entry.calls.size() * sizeof(gate::InjectedCall);
  uint64_t received = 0, written = 0;
  for (const auto& part : entry.parts) received += part.length;
  for (const auto& write : event.writes) {
    size += sizeof(gate::Output) + gate::padded(write.data.size());
    written += write.from_message() ? write.length : 0;
  }
  const bool unlogged = event.receive && !event.receive->logged;
  if (size > ring.size() - start || (unlogged && written > received)) return std::nullopt;
  uint8_t* out = ring.data() + start;
  auto& expected = *reinterpret_cast<gate::Expected*>(out);
  expected.size = expected.own_size = static_cast<uint32_t>(size);
  expected.number = event.kind == EventKind::trap ? gate::kTrapNumber : event.number;
  expected.site = entry.stop;
  std::copy(event.args.begin(), event.args.end(), expected.args);
  expected.in_hash = event.in_hash;
  expected.result = event.result;
  expected.repeat = event.cycle == 1 ? event.repeat : 1;
  expected.cycle = 1;
  expected.regs_mask = event.regs_hash.mask;
  expected.regs_hash = event.regs_hash.value;
  expected.arguments = row ? static_cast<uint16_t>(row->argument_count()) : 0;
  expected.sends = entry.sends ? static_cast<uint32_t>(*entry.sends + 1) : 0;
  expected.parts = static_cast<uint32_t>(entry.parts.size());
  expected.calls = static_cast<uint32_t>(entry.calls.size());
  expected.outputs = static_cast<uint32_t>(event.writes.size());
  out += sizeof expected;
  const auto append = [&](const auto& items) {
    for (const auto& item : items) {
      std::memcpy(out, &item, sizeof item);
      out += sizeof item;
    }
  };
  append(entry.parts);
  append(entry.calls);
  for (const auto& write : event.writes) {
    *reinterpret_cast<gate::Output*>(out) = {write.address, write.length, write.from_message()};
    out += sizeof(gate::Output);
    std::copy(write.data.begin(), write.data.end(), out);  // memcpy(3) takes no null pointer, even for no bytes
    out += gate::padded(write.data.size());
  }
  return start + size;
}

}  // namespace redrive
