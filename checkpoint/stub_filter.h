// The seccomp program of stubs: which calls they may make in addition to those that their tracer has them make.
#pragma once

#include <linux/filter.h>

#include <vector>

#include "checkpoint/address_space.h"

namespace redrive {

// Code that will be mapped into a stub and makes calls of its own there, with its data.
struct StubTier {
  Address call = 0;  // right after its syscall instruction; 0: there is no such code
  AddressRange memory;
  Address patience = 0;  // the only timeout with which it waits in futex(2)

  bool operator==(const StubTier&) const = default;
};

// Right after the instruction at `call`, in the stub's own `memory`, calls that build memory are let through. Right
// after the tier's instruction, calls that change memory, wait for a word of it or wake those who wait are let through.
// All other calls, wherever they are made, stop (SECCOMP_RET_TRACE), and so do calls that would change what is mapped
// in the stub's own memory or the tier's. Calls of other architectures (x32, i386) fail with ENOSYS.
//
// The calls that are let through affect only the memory of the stub itself, and none of them sleeps for long: recorded
// code that jumps to these instructions can achieve nothing else with them. The stub has one descriptor, a socket over
// which its tracer sends files.
std::vector<sock_filter> stub_filter(Address call, AddressRange memory, const StubTier& tier);

}  // namespace redrive
