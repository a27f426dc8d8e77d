// System calls that change the memory layout: how a replay makes the same layout in a stub, and what record and replay
// both learn from such calls. What the recorder notes of them is in record/stops/layout_calls.h.
#pragma once

#include <optional>
#include <span>

#include "checkpoint/restore.h"
#include "interceptors/syscall_table.h"
#include "logstore/event.h"

namespace redrive {

// Gives the object the state after this change. It is then no longer a copy of the trace's (SharedObjects).
Result<void> replay_object_change(const ObjectChange& change, SharedObjects& shared, const FilePath& file_path);

// What a call that maps memory, or protects it anew, asks that may be done with it. `special`: from its row.
int protection_asked(Special special, std::span<const uint64_t, 6> args);

// Adds the calls that make, in this stub, the layout change that `event` recorded. `brk` is the process's, before and
// after the call.
Result<void> replay_memory_call(const Event& event, Special special, const Stub& stub, Address& brk, Calls& calls,
                                SharedObjects& shared, const FilePath& file_path);

// Whether a call that failed may have changed memory first. `special`: from its row.
bool may_have_changed(const Event& event, Special special);
// Changes in a stub what such a call had changed when it failed. If the event does not say what that was, it makes the
// call, which fails in the same way: an Error if it may have failed for a reason that does not exist there, after it
// changed a part of its memory.
Result<void> replay_failed_memory_call(const Event& event, const Stub& stub, pid_t tid);
// Moves or resizes memory (mremap(2)) that was one mapping in the recorded process but is several in the stub, because
// the stub may merge mappings less than the kernel did there. False if it is one mapping here too.
Result<bool> remap_pieces(const Event& event, const Stub& stub, Calls& calls);

// The entry that a call to modify_ldt(2) has written.
std::optional<LocalDescriptor> descriptor_written(std::span<const uint64_t, 6> args, const Memory& memory);

// Whether a call to personality(2) has let its thread execute all that it maps to be read from then on; none if the
// call has left that alone.
std::optional<bool> read_implies_exec_set_by(std::span<const uint64_t, 6> args, int64_t result);

// A limit of a stack's size, set by a call (setrlimit(2), prlimit(2)).
struct StackLimit {
  int32_t pid = 0;    // the process; 0: the caller
  Address value = 0;  // where the new rlimit is
};
std::optional<StackLimit> stack_limit_set_by(int64_t number, std::span<const uint64_t, 6> args, int64_t result);

}  // namespace redrive
