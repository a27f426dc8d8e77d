// The time-stamp counter as recorded programs see it: the kernel's raw monotonic clock, in the counter's units. Reading
// the counter itself would cost more than a system call, because it would have to be made readable first, which takes 8
// us each way on virtual machines.
#pragma once

#include <cstdint>

namespace redrive {

struct Counter {
  uint64_t ns = 0;     // of the clock (clock_gettime(2), CLOCK_MONOTONIC_RAW)
  uint64_t value = 0;  // the counter's value at that time
  uint64_t rate = 0;   // per nanosecond, times 2^32
};

constexpr uint64_t counter_at(const Counter& counter, uint64_t ns) {
  return counter.value + static_cast<uint64_t>(static_cast<unsigned __int128>(ns - counter.ns) * counter.rate >> 32);
}

}  // namespace redrive
