// What the kernel does, when a thread ends, to memory that others may continue to use: it marks robust futexes
// (get_robust_list(2), Documentation/locking/robust-futexes.rst), and clears the word that joiners wait for
// (set_tid_address(2)).
#pragma once

#include "logstore/event.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

// Adds to the event what the kernel writes when the thread ends, alone or with its whole process.
void note_thread_end(const Thread& thread, bool whole_process, Event& event);
// What the kernel writes when a thread of the process executes a program: all of its threads leave the memory.
std::vector<MemoryWrite> written_by_exec(const Process& process);

}  // namespace redrive
