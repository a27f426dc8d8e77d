// Syscalls that change the memory layout: what record notes of them, and how replay makes the same layout in a stub.
// Both directions of each stand side by side in memory_calls.cc.
#pragma once

#include "checkpoint/restore.h"
#include "interceptors/syscall_table.h"
#include "logstore/event.h"

namespace redrive {

// Makes the object what it is after this change. It is no copy of the trace's (SharedObjects).
Result<void> replay_object_change(const ObjectChange& change, SharedObjects& shared, const FilePath& file_path);

// Adds what makes the layout change that `event` recorded, in this stub. `brk` is the process's, as the call finds it
// and leaves it.
Result<void> replay_memory_call(const Event& event, Special special, const Stub& stub, Address& brk, Calls& calls,
                                SharedObjects& shared, const FilePath& file_path);

}  // namespace redrive
