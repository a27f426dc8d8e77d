// What the kernel does to memory when a thread ends, that others may go on to use: robust futexes say so
// (get_robust_list(2), Documentation/locking/robust-futexes.rst), and the word that joiners wait for is cleared
// (set_tid_address(2)).
#pragma once

#include "logstore/event.h"
#include "supervisor/record/tracee.h"

namespace redrive {

// Adds to the event what the kernel writes when the thread ends, alone or with its whole process.
void note_thread_end(const Thread& thread, bool whole_process, Event& event);

}  // namespace redrive
