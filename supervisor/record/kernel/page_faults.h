// What page faults cost programs (getrusage(2), ru_minflt).
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace redrive {

// About how much CPU time those of a process have taken so far, in nanoseconds: their number, times what one takes on
// this machine if the page is copied, which is measured once. 0 if the process has ended.
uint64_t page_faults_ns(pid_t pid);

}  // namespace redrive
