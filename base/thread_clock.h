// The CPU time that the calling thread has used (clock_gettime(2), CLOCK_THREAD_CPUTIME_ID), in nanoseconds.
#pragma once

#include <time.h>

#include <cstdint>

namespace redrive {

inline uint64_t thread_cpu_ns() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
}

}  // namespace redrive
