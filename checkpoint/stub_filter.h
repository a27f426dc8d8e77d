// The seccomp program of stubs: what they call beside what their tracer has them call.
#pragma once

#include <linux/filter.h>

#include <vector>

#include "base/page.h"

namespace redrive {

// Behind the instruction at `stub` the calls that build memory are let through, and behind the one at `tier` (0: there
// is none) those that change it, wait for memory to change, and wake who waits. All others, wherever they are made,
// stop (SECCOMP_RET_TRACE); those of other architectures (x32, i386) fail with ENOSYS.
//
// None of those that are let through concerns anything but the memory of the stub itself: recorded code that jumps to
// these instructions reaches nothing else with them. It has one descriptor, a socket over which its tracer sends files.
std::vector<sock_filter> stub_filter(Address stub, Address tier);

}  // namespace redrive
