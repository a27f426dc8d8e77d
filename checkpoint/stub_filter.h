// The seccomp program of stubs: what they call beside what their tracer has them call.
#pragma once

#include <linux/filter.h>

#include <vector>

#include "checkpoint/address_space.h"

namespace redrive {

// Code that is to be mapped into a stub and makes calls of its own there, and what it keeps beside it.
struct StubTier {
  Address call = 0;  // behind its syscall instruction; 0: there is no such code
  AddressRange memory;
  Address patience = 0;  // the only timeout with which it waits for a futex(2)

  bool operator==(const StubTier&) const = default;
};

// Behind the instruction at `call`, in the stub's own `memory`, calls that build memory are let through, and behind the
// tier's those that change it, wait for a word of it, and wake who waits. All others, wherever they are made, stop
// (SECCOMP_RET_TRACE), and so do those that would change what is mapped in the stub's memory or the tier's; those of
// other architectures (x32, i386) fail with ENOSYS.
//
// None of those that are let through concerns anything but the memory of the stub itself, or sleeps for long: recorded
// code that jumps to these instructions reaches nothing else with them. It has one descriptor, a socket over which its
// tracer sends files.
std::vector<sock_filter> stub_filter(Address call, AddressRange memory, const StubTier& tier);

}  // namespace redrive
