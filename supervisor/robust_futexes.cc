#include "supervisor/robust_futexes.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace redrive {
namespace {

void note_word(const Memory& memory, Address at, pid_t owner, Event& event) {
  uint32_t word = 0;
  if (!memory.get(at, word) || static_cast<pid_t>(word & FUTEX_TID_MASK) != owner) return;
  const uint32_t died = (word & FUTEX_WAITERS) | FUTEX_OWNER_DIED;
  MemoryWrite write{at, sizeof died, false, Bytes(sizeof died)};
  std::memcpy(write.data.data(), &died, sizeof died);
  event.writes.push_back(std::move(write));
}

}  // namespace

void note_robust_futexes(const Thread& thread, Event& event) {
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
  for (int limit = 0; limit < ROBUST_LIST_LIMIT && entry && entry != head; ++limit) {
    note_word(memory, word_of(entry), thread.tid, event);
    robust_list next{};
    if (!memory.get(entry, next)) break;
    entry = entry_address(next.next);
  }
  if (const Address pending = entry_address(list.list_op_pending))
    note_word(memory, word_of(pending), thread.tid, event);
}

}  // namespace redrive
