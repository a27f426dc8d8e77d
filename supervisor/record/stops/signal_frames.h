// What the kernel puts on the stack for a signal handler (arch/x86/include/asm/sigframe.h, struct rt_sigframe).
#pragma once

#include <sys/user.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "base/remote.h"

namespace redrive {

// The registers of what was interrupted, in the kernel's order (asm/sigcontext.h, struct sigcontext_64).
struct SavedRegisters {
  uint64_t r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
  uint16_t cs, gs, fs, ss;

  // All but segments.
  void put_into(user_regs_struct& regs) const;
  void take_from(const user_regs_struct& regs);
};

// Where they are, for a handler that is at its first instruction, with this stack pointer.
Address saved_registers(Address sp);
// Where they seem to be, on the stack from `sp` on, for handlers that have interrupted what `wanted` says.
std::vector<Address> saved_registers(const Memory& memory, Address sp, const std::function<bool(Address ip)>& wanted);

}  // namespace redrive
