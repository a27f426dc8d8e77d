// Threads and processes that a re-driven unit makes: those of its own, and those that are units of their own, which
// the threads that re-drive them take over.
#pragma once

#include "interceptors/syscall_table.h"
#include "supervisor/replay/message_store.h"
#include "supervisor/replay/redriving.h"

namespace redrive {

// Makes what the parent's call has made; the parent is at the call's entry.
Result<void> bear(const Redriving& redriving, MessageStore& store, const RedrivenThread& parent, EventIndex index,
                  const Event& event, const SyscallRow& row);

// Takes over what the event has made, for a unit that begins with it. `pid`: its process's in the recording.
Result<void> adopt(const Redriving& redriving, MessageStore& store, EventRef fork, int32_t pid);

}  // namespace redrive
