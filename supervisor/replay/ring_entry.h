// Events as the code inside tracees finds them in its ring (interceptors/inprocess/layout.h).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "interceptors/inprocess/layout.h"
#include "interceptors/patch_window.h"
#include "interceptors/syscall_table.h"
#include "logstore/event.h"
#include "supervisor/tier/gate.h"

namespace redrive {

// Whether that code can answer calls of this kind: it executes none.
bool is_answered(const SyscallRow& row);
// Whether it can make them in a stub: they change memory.
bool is_made(const SyscallRow& row);
// The instruction that makes an event, which is a system call or a trap.
SiteKind kind_of(const Event& event);
Address site_of(const Event& event);

// Whether the event is one that can be answered or made in process. `row`: its call's, null for a trap. `shows_sends`:
// what it sends is to be shown, which only the supervisor can.
bool fits_ring(const Event& event, const SyscallRow* row, bool shows_sends);

// What an entry holds apart from its event.
struct RingEntry {
  Address stop = 0;                           // of its instruction's site
  std::optional<uint64_t> sends;              // the index of its message, if an interval needs it
  std::vector<gate::Part> parts;              // where the message that it receives is
  std::span<const gate::InjectedCall> calls;  // to be made in its place
};

// Puts it at `start`. Returns where it ends; none if there is no room, or the message is shorter than what was written.
std::optional<uint64_t> put_entry(std::span<uint8_t> ring, uint64_t start, const Event& event, const SyscallRow* row,
                                  const RingEntry& entry);

}  // namespace redrive
