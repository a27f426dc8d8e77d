// Where programs run that write code which they execute, on processors that do not trap cpuid. Such code may execute it
// (HotSpot's does, to learn about the processor), and part of what cpuid says differs between processors: their own
// numbers. So from the call by which a program gets memory for such code (makes_writable_code()) until it has used some
// CPU time, it runs on the same processor in a recording and in its replays: the first of those that redrive may run
// on. Code that executes cpuid later, or that another machine re-drives, may find another number.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>

namespace redrive {

// CPU time: that of the program when it is recorded. A replay uses more, because its tracer's counts too.
inline constexpr uint64_t kCodeSettles_ns = 50'000'000;
inline constexpr uint64_t kReplayedCodeSettles_ns = 4 * kCodeSettles_ns;

// The first of these processors; 0 if there are none.
inline int first_processor(const cpu_set_t& processors) {
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<size_t>(i), &processors)) return i;
  }
  return 0;
}

inline cpu_set_t only(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(processor), &set);
  return set;
}

}  // namespace redrive
