// What a divergence report shows of the diverging thread.
#pragma once

#include <string>

#include "base/remote.h"

namespace redrive {

// The call stack of a stopped tracee of the calling thread, one frame a line (libunwind-ptrace(3)).
std::string stack_of(pid_t tid);
// The instructions at an address, one a line (Capstone).
std::string disassembly_at(const Memory& memory, Address address);
// General registers on one line.
std::string describe_registers(const user_regs_struct& regs);

}  // namespace redrive
