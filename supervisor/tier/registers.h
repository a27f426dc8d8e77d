// Registers and signals at stops, for record and replay.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/remote.h"
#include "checkpoint/address_space.h"
#include "checkpoint/unit_state.h"

namespace redrive {

// The flag with which a thread traps after each instruction.
inline constexpr uint64_t kTrapFlag = 0x100;

// Below the stack pointer, what functions may use without moving it (System V ABI for x86-64, the red zone).
inline constexpr uint64_t kRedZone = 128;

// Below that, where functions have left what they needed that have returned; it may begin in other memory than the
// stack.
inline AddressRange unused_stack(Address stack_pointer) {
  constexpr uint64_t kDeepest = 256 << 10;
  const Address end = stack_pointer - std::min(stack_pointer, kRedZone);
  return {end - std::min(end, kDeepest), end};
}

// Converts the registers at the entry of a system call to those with which the thread is about to execute its syscall
// instruction.
inline user_regs_struct before_syscall(const user_regs_struct& entry) {
  user_regs_struct regs = entry;
  regs.rip -= 2;
  regs.rax = entry.orig_rax;
  regs.orig_rax = ~0ull;
  return regs;
}

// The number of a call: the kernel looks only at this half of the register.
inline uint64_t call_number(const user_regs_struct& regs) {
  return static_cast<uint64_t>(int64_t{static_cast<int32_t>(regs.orig_rax)});
}

// Whether a call, at its entry, is not one of 64-bit programs: of 32-bit code, by int $0x80, or by a number of x32.
// Filters answer these unseen (interceptors/seccomp_filter.h).
inline bool is_foreign_call(const user_regs_struct& entry, const Memory& memory) {
  constexpr uint64_t kX32 = 0x40000000;
  constexpr uint16_t kInt80 = 0x80cd;
  uint16_t instruction = 0;
  return entry.cs != kCodeSegment || (entry.orig_rax & kX32) ||
         (memory.get(entry.rip - sizeof instruction, instruction) && instruction == kInt80);
}

// Whether a call comes from the page of calls that the kernel emulates at a fixed address (vsyscall in
// arch/x86/entry/vsyscall). It does so at a fault, and asks filters before (seccomp(2)), with the instruction pointer
// at the call's first instruction; PTRACE_SYSEMU does not show the call. If the call is skipped, the kernel returns to
// the caller with the value of rax; there is no stop at its exit.
inline bool in_vsyscall_page(uint64_t ip) {
  constexpr uint64_t kPage = 0xffffffffff600000, kSize = 0x1000;
  return ip >= kPage && ip - kPage < kSize;
}

// A hash of what a system call does not change and the kernel does not choose: all registers except rax, rcx, r11, the
// arguments and the flags.
inline uint32_t preserved_registers_hash(const user_regs_struct& r) {
  const uint64_t values[] = {r.rbx, r.rbp, r.rsp, r.r12, r.r13, r.r14, r.r15, r.fs_base, r.gs_base};
  return static_cast<uint32_t>(XXH3_64bits(values, sizeof values));
}

// The same where it makes no call, and all that can be compared counts.
inline uint32_t comparable_registers_hash(const user_regs_struct& r) {
  const auto values = comparable_registers(r);
  return static_cast<uint32_t>(XXH3_64bits(values.data(), values.size() * sizeof values[0]));
}

// Whether a result says that a signal came before the kernel did anything. The kernel then enters the call again unless
// a handler says otherwise (linux/errno.h).
inline constexpr int64_t kErestartNoInterrupt = -513;  // enters it again in any case
inline constexpr int64_t kErestartNoHandler = -514;
inline constexpr int64_t kErestartRestartblock = -516;
inline bool restarts(int64_t result) {
  constexpr int64_t kErestartsys = -512;
  return result <= kErestartsys && result >= kErestartRestartblock;
}

// Converts the registers right after a system call to those with which the thread continues if no handler runs.
inline user_regs_struct after_restart(const user_regs_struct& behind) {
  const auto result = static_cast<int64_t>(behind.rax);
  if (static_cast<int64_t>(behind.orig_rax) < 0 || !restarts(result)) return behind;
  user_regs_struct regs = before_syscall(behind);
  if (result == kErestartRestartblock) regs.rax = SYS_restart_syscall;
  return regs;
}

// Whether a result is an error: -4095 to -1 (syscalls(2)).
inline bool is_error(int64_t result) { return result < 0 && result > -4096; }

inline Bytes as_bytes(const user_regs_struct& regs) {
  const auto* first = reinterpret_cast<const uint8_t*>(&regs);
  return Bytes(first, first + sizeof regs);
}

// False if `bytes` is not a register file.
inline bool from_bytes(const Bytes& bytes, user_regs_struct& regs) {
  if (bytes.size() != sizeof regs) return false;
  std::memcpy(&regs, bytes.data(), sizeof regs);
  return true;
}

}  // namespace redrive
