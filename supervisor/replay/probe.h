// A place in a re-driven process at which its thread is to stop, if it comes there with given registers: a jump to code
// that compares them, so that a loop can pass there millions of times; a breakpoint where no jump fits. Shared memory
// gives way to a private copy until the probe is removed: the kernel lets nobody write there what the program may not
// write, and what is written there shows in other mappings, too.
//
// The process must have no in-process tier mapped. foreign() names what it holds in addition to the program's own
// memory.
#pragma once

#include <sys/user.h>

#include <optional>
#include <vector>

#include "base/bytes.h"
#include "checkpoint/stub.h"
#include "interceptors/patch_window.h"
#include "supervisor/replay/verify.h"

namespace redrive {

class Probe {
 public:
  // Installs it. `wanted.rip` is the place. `any_count`: it is a repeated string instruction, and the registers that it
  // counts with, rcx, rsi and rdi, may be any. The thread is a stopped one of the stub's.
  static Result<Probe> set(const Stub& stub, pid_t tid, const user_regs_struct& wanted, bool any_count = false);

  // Whether the thread, stopped by a SIGTRAP with these registers, is at the place, and whether they are all that is
  // wanted. If it is there, `regs.rip` becomes the place.
  enum class Stop : uint8_t { elsewhere, other_registers, wanted };
  Stop at(user_regs_struct& regs) const;
  // Lets the thread, which is there, continue to its next stop. False if it is gone.
  bool pass(pid_t tid, user_regs_struct regs) const;
  // From now on the thread stops only if the 8 bytes there hold this, too.
  bool require(Address address, uint64_t value);
  Result<void> remove(pid_t tid, const user_regs_struct& regs) const;
  // What the comparison of the memory must leave out.
  std::vector<AddressRange> foreign() const;
  bool compares() const { return area_ != 0; }
  // Whether what was inserted is still there, and what gave way to a copy still equals it: a program that writes code
  // can overwrite them.
  bool intact() const;

 private:
  Probe(const Stub& stub, const user_regs_struct& wanted, bool any_count)
      : stub_(&stub), wanted_(wanted), any_count_(any_count) {}
  // Pages of shared code, which are somewhere else for the time being: where they were is a copy.
  struct Moved {
    AddressRange pages;
    Address away = 0;
    Bytes contents;
  };
  Result<void> leave_window(pid_t tid) const;
  Result<void> move_away(pid_t tid, const Mapping& mapping, Address away);
  Result<void> move_back(Calls& calls) const;
  bool insert() const;
  bool holds(Address address, const Bytes& expected) const;

  const Stub* stub_;
  user_regs_struct wanted_;
  bool any_count_;
  Bytes original_;  // what the place held
  Bytes inserted_;
  std::optional<Moved> moved_;
  Address area_ = 0;  // of the comparing code and its data; 0: a breakpoint
  Address hit_ = 0;   // its breakpoint
  unsigned required_ = 0;
};

// Has the stopped thread stop with SIGTRAP right before it executes the instruction at this address, whatever is there
// by then; 0: not any more. False where that does not work: it takes a debug register.
bool stop_before(pid_t tid, Address address);

// Whether debug registers stop a program here: on some virtual machines they can be set and do nothing.
bool debug_registers_work();

}  // namespace redrive
