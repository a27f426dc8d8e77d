// Which calls make processes and threads, and which execute programs; the arguments of fork, vfork, clone and clone3 in
// one form. For record and replay.
#pragma once

#include <linux/sched.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <array>

#include "base/remote.h"
#include "interceptors/syscall_table.h"

namespace redrive {

// In the terms of clone3(2).
struct BirthRequest {
  uint64_t flags = 0;
  Address pidfd = 0;
  Address parent_tid = 0;
  Address child_tid = 0;
  Address stack = 0;  // the child's initial stack pointer; 0: the same as its parent's
  uint64_t tls = 0;
  int exit_signal = 0;  // that the child's end sends
};

inline bool is_birth(const SyscallRow& row) {
  return row.special == Special::fork || row.special == Special::vfork || row.special == Special::clone ||
         row.special == Special::clone3;
}

// Whether its memory is replaced, if the call succeeds (execve(2)).
inline bool executes_program(const SyscallRow& row, const std::array<uint64_t, 6>& args) {
  constexpr uint64_t kOnlyChecks = 0x10000;  // AT_EXECVE_CHECK
  return row.special == Special::execve || (row.special == Special::execveat && !(args[4] & kOnlyChecks));
}

// `memory`: the parent's, at the call's entry or later.
inline BirthRequest birth_request(const SyscallRow& row, const std::array<uint64_t, 6>& args, const Memory& memory) {
  switch (row.special) {
    case Special::vfork:
      return {CLONE_VM | CLONE_VFORK, 0, 0, 0, 0, 0, SIGCHLD};
    case Special::clone:
      return {args[0], args[2], args[2], args[3], args[1], args[4], static_cast<int>(args[0] & CSIGNAL)};
    case Special::clone3: {
      clone_args asked{};
      memory.read(args[0], &asked, std::min<uint64_t>(args[1], sizeof asked));
      const Address stack = asked.stack ? asked.stack + asked.stack_size : 0;
      const auto signal = static_cast<int>(asked.exit_signal);
      return {asked.flags, asked.pidfd, asked.parent_tid, asked.child_tid, stack, asked.tls, signal};
    }
    default:
      return {0, 0, 0, 0, 0, 0, SIGCHLD};
  }
}

}  // namespace redrive
