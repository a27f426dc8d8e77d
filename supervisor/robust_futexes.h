// What the kernel does to robust futexes whose owner ends (get_robust_list(2),
// Documentation/locking/robust-futexes.rst).
#pragma once

#include "logstore/event.h"
#include "supervisor/tracee.h"

namespace redrive {

// Adds to the event the futex words that will say FUTEX_OWNER_DIED once the thread has ended.
void note_robust_futexes(const Thread& thread, Event& event);

}  // namespace redrive
