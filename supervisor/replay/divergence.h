// What a divergence report shows of the diverging thread.
#pragma once

#include <map>
#include <string>

#include "base/remote.h"
#include "logstore/trace.h"

namespace redrive {

using CopiedFiles = std::map<uint64_t, FileRecord>;  // as Trace::files()

// The call stack of a stopped tracee of the calling thread, one frame a line: by function where the symbols tell it,
// else by place in the file. "no stack: ..." if what is to be read for it makes that fail (confined.h).
std::string stack_of(pid_t tid, const CopiedFiles& files);
// The instructions at an address, one a line (Capstone); "no instructions: ..." likewise.
std::string disassembly_at(const Memory& memory, Address address);
// As C's %#x prints it.
std::string hex(uint64_t value);
// General registers on one line.
std::string describe_registers(const user_regs_struct& regs);

}  // namespace redrive
