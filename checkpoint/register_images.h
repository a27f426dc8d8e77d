// A thread's registers as CRIU's messages have them (thread_info_x86).
#pragma once

#include <sys/user.h>

#include <array>

#include "base/bytes.h"
#include "checkpoint/state_images.pb.h"

namespace redrive {

void add_registers(const user_regs_struct& regs, criu::user_x86_regs_entry& out);
user_regs_struct registers_of(const criu::user_x86_regs_entry& in);

// The extended registers, which come from the kernel as XSAVE writes them (PTRACE_GETREGSET, NT_X86_XSTATE). Where a
// register set lies in them depends on the processor, so a state has a list of that.
class XstateLayout {
 public:
  static XstateLayout of_processor();
  static XstateLayout of(const images::State& state);
  void add_to(images::State& state) const;

  // What the messages have fields for goes there, the rest beside them.
  void write(const Bytes& xstate, images::Thread& out) const;
  // False: the message contradicts itself. Changes the message.
  bool read(images::Thread& in, Bytes& xstate) const;

 private:
  static constexpr size_t kNumbers = 10;
  std::array<size_t, kNumbers> offsets_{};  // by component; 0: the processor has none
};

}  // namespace redrive
