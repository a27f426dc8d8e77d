// What the kernel does to the memory of threads beyond the exits of their calls, where others may continue to use that
// memory, or have got a copy of it: a call that has not come to its exit may have written; when a thread ends, its
// robust futexes are marked (get_robust_list(2), Documentation/locking/robust-futexes.rst), and the word that joiners
// wait for is cleared (set_tid_address(2)).
#pragma once

#include "logstore/event.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

// Whether a call of the thread may have written, or may yet write: it has not come to its exit.
bool call_may_write(const Thread& thread);
// Adds what such a call may have written already, as it lies in that memory: the thread's, or a copy of it.
void note_pending_outputs(const Thread& thread, const Memory& memory, std::vector<MemoryWrite>& writes);
// Adds what the kernel writes when only the thread ends, and its process goes on.
void note_thread_end(const Thread& thread, std::vector<MemoryWrite>& writes);
// Adds both for all threads of a process that leaves its memory, for its end or for another program. Nothing if the
// process is alone in its unit: nobody finds it.
void note_process_end(const Process& process, std::vector<MemoryWrite>& writes);

}  // namespace redrive
