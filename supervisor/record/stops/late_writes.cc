#include "supervisor/record/stops/late_writes.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace redrive {
namespace {

void note_word(const Memory& memory, Address at, pid_t owner, std::vector<MemoryWrite>& writes) {
  uint32_t word = 0;
  if (!memory.get(at, word) || static_cast<pid_t>(word & FUTEX_TID_MASK) != owner) return;
  const uint32_t died = (word & FUTEX_WAITERS) | FUTEX_OWNER_DIED;
  MemoryWrite write{at, sizeof died, MemoryWrite::Kind::data, Bytes(sizeof died)};
  std::memcpy(write.data.data(), &died, sizeof died);
  writes.push_back(std::move(write));
}

// Adds the futex words that will say FUTEX_OWNER_DIED.
void note_robust_futexes(const Thread& thread, std::vector<MemoryWrite>& writes) {
  Address head = 0;
  size_t size = 0;
  if (syscall(SYS_get_robust_list, thread.tid, &head, &size) != 0 || !head) return;
  const Memory& memory = thread.process->memory;
  robust_list_head list{};
  if (!memory.get(head, list)) return;
  constexpr Address kPriorityInheritance = 1;
  const auto entry_address = [](const robust_list* entry) {
    return reinterpret_cast<Address>(entry) & ~kPriorityInheritance;
  };
  const auto word_of = [&](Address entry) { return entry + static_cast<Address>(list.futex_offset); };
  Address entry = entry_address(list.list.next);
  const Address pending = entry_address(list.list_op_pending);
  if (entry == head && !pending) return;
  const pid_t owner = pid_in_own_namespace(thread.tid);
  for (int limit = 0; limit < ROBUST_LIST_LIMIT && entry && entry != head; ++limit) {
    note_word(memory, word_of(entry), owner, writes);
    robust_list next{};
    if (!memory.get(entry, next)) break;
    entry = entry_address(next.next);
  }
  if (pending) note_word(memory, word_of(pending), owner, writes);
}

// Vfork children and their parents share memory. Those that have ended do not count.
bool others_use_memory_of(const Process& process) {
  const auto& processes = process.unit->processes;
  return std::any_of(processes.begin(), processes.end(), [&](const auto& other) {
    return other.get() != &process && other->memory_id == process.memory_id && !other->end_logged;
  });
}

void note_end(const Thread& thread, bool clears_tid, std::vector<MemoryWrite>& writes) {
  if (thread.clear_tid && clears_tid) writes.push_back({thread.clear_tid, 4, MemoryWrite::Kind::data, Bytes(4)});
  note_robust_futexes(thread, writes);
}

}  // namespace

bool call_may_write(const Thread& thread) {
  const bool in_kernel = thread.is<Thread::Syscall>() || thread.is<Thread::Blocked>();
  return thread.call.row && (in_kernel || thread.is_ready(Thread::Stop::exit));
}

void note_pending_outputs(const Thread& thread, const Memory& memory, std::vector<MemoryWrite>& writes) {
  constexpr uint64_t kMost = 16 << 20;  // of one buffer
  if (!call_may_write(thread)) return;
  for (const Span& span : possible_outputs(thread.call.output_args, thread.call.sizes)) {
    Bytes data(std::min(span.length, kMost));
    data.resize(memory.read_some(span.address, data.data(), data.size()));
    if (!data.empty()) writes.push_back({span.address, data.size(), MemoryWrite::Kind::data, std::move(data)});
  }
}

void note_thread_end(const Thread& thread, std::vector<MemoryWrite>& writes) { note_end(thread, true, writes); }

void note_process_end(const Process& process, std::vector<MemoryWrite>& writes) {
  if (process.unit->processes.size() == 1) return;
  const bool clears_tid = others_use_memory_of(process);
  const auto each = [&](const auto& note) {
    for (const auto& [serial, thread] : process.unit->threads) {
      if (thread->process == &process && !thread->exited) note(*thread);
    }
  };
  each([&](const Thread& thread) { note_pending_outputs(thread, process.memory, writes); });
  each([&](const Thread& thread) { note_end(thread, clears_tid, writes); });
}

}  // namespace redrive
