// What the kernel puts on the stack for a signal handler (arch/x86/include/asm/sigframe.h, struct rt_sigframe).
#pragma once

#include <cstdint>

#include "base/remote.h"

namespace redrive {

// The registers of what was interrupted, in the kernel's order (asm/sigcontext.h, struct sigcontext_64).
struct SavedRegisters {
  uint64_t r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
  uint16_t cs, gs, fs, ss;
};

// Where they are, for a handler that is at its first instruction, with this stack pointer.
Address saved_registers(Address sp);

}  // namespace redrive
