#include "supervisor/record/stops/signal_frames.h"

#include <sys/ucontext.h>

#include <cstddef>
#include <cstring>

namespace redrive {

void SavedRegisters::put_into(user_regs_struct& regs) const {
  regs.r8 = r8, regs.r9 = r9, regs.r10 = r10, regs.r11 = r11;
  regs.r12 = r12, regs.r13 = r13, regs.r14 = r14, regs.r15 = r15;
  regs.rdi = rdi, regs.rsi = rsi, regs.rbp = rbp, regs.rbx = rbx;
  regs.rdx = rdx, regs.rax = rax, regs.rcx = rcx, regs.rsp = rsp;
  regs.rip = rip, regs.eflags = eflags;
}

void SavedRegisters::take_from(const user_regs_struct& regs) {
  r8 = regs.r8, r9 = regs.r9, r10 = regs.r10, r11 = regs.r11;
  r12 = regs.r12, r13 = regs.r13, r14 = regs.r14, r15 = regs.r15;
  rdi = regs.rdi, rsi = regs.rsi, rbp = regs.rbp, rbx = regs.rbx;
  rdx = regs.rdx, rax = regs.rax, rcx = regs.rcx, rsp = regs.rsp;
  rip = regs.rip, eflags = regs.eflags;
}

Address saved_registers(Address sp) {
  static_assert(offsetof(SavedRegisters, rip) == REG_RIP * sizeof(greg_t));
  return sp + sizeof(uint64_t) + offsetof(ucontext_t, uc_mcontext.gregs);
}

std::vector<Address> saved_registers(const Memory& memory, Address sp, const std::function<bool(Address ip)>& wanted) {
  constexpr size_t kMost = 64 << 10, kWord = sizeof(uint64_t);
  constexpr uint64_t kAlwaysSet = 2, kMostFlags = 1 << 22;
  Bytes stack(kMost);
  stack.resize(memory.read_some(sp, stack.data(), stack.size()));
  std::vector<Address> found;
  for (size_t at = 0; at + sizeof(SavedRegisters) <= stack.size(); at += kWord) {
    SavedRegisters saved;
    std::memcpy(&saved, stack.data() + at, sizeof saved);
    const bool is_frame = saved.cs == kCodeSegment && saved.ss == kStackSegment && (saved.eflags & kAlwaysSet) &&
                          saved.eflags < kMostFlags;
    if (is_frame && wanted(saved.rip)) found.push_back(sp + at);
  }
  return found;
}

}  // namespace redrive
