// Syscalls that change the memory layout: how replay makes the same layout in a stub, and what both directions read off
// such calls. What the recorder notes of them is in record/recorder_memory.cc.
#pragma once

#include <optional>
#include <span>

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

// Whether a call that failed may have changed memory before it did. `special`: of its row.
bool may_have_changed(const Event& event, Special special);
// Makes such a call in a stub, where it fails in the same way. An Error: it may have failed for a reason that is not
// known there, having changed a part of its memory.
Result<void> replay_failed_memory_call(const Event& event, const Stub& stub, pid_t tid);
// Moves or resizes what the recorded process had in one piece (mremap(2)) and the stub, which may join mappings less
// than the kernel did there, has in several. False if it is in one here as well.
Result<bool> remap_pieces(const Event& event, const Stub& stub, Calls& calls);

// The entry that a call to modify_ldt(2) has written.
std::optional<LocalDescriptor> descriptor_written(std::span<const uint64_t, 6> args, const Memory& memory);

// How far a stack may grow, set by a call (setrlimit(2), prlimit(2)).
struct StackLimit {
  int32_t pid = 0;    // of the process; 0: the caller's
  Address value = 0;  // of the new rlimit
};
std::optional<StackLimit> stack_limit_set_by(int64_t number, std::span<const uint64_t, 6> args, int64_t result);

}  // namespace redrive
