// What a program has forbidden one of its threads by seccomp(2) and prctl(2).
//
// The kernel does not get the program's filters, because it would apply them to the recorder's own calls too. They are
// kept here, and asked at the entry of each call that they may forbid. This class says what the kernel would do about
// the call; the recorder does it. A replay needs only the recorded results, signals and ends.
//
// New threads and programs inherit a copy.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <memory>
#include <span>
#include <variant>

#include "base/remote.h"
#include "interceptors/program_filters.h"
#include "interceptors/syscall_table.h"

namespace redrive {

class Confinement {
 public:
  // A thread to which nothing is forbidden. `no_new_privileges`: what PR_GET_NO_NEW_PRIVS answers (prctl(2)).
  explicit Confinement(bool no_new_privileges = false) : no_new_privileges_(no_new_privileges) {}

  // A call at its entry.
  struct Call {
    const SyscallRow* row = nullptr;  // null if it has none
    uint64_t number = 0;
    Address ip = 0;  // right after the instruction
    const std::array<uint64_t, 6>& args;
  };
  // The kernel makes the call.
  struct Allowed {};
  // The call is not made and has this result.
  struct Answered {
    int64_t result = 0;
  };
  // The call is not made. If the thread has a handler for this signal, it gets the signal, and the call has this
  // result; otherwise the process ends.
  struct Trapped {
    siginfo_t info{};
    int64_t result = 0;
  };
  // The thread or its whole process ends, as if by this signal.
  struct Fatal {
    int signal = 0;
    bool whole_process = false;
  };
  using Verdict = std::variant<Allowed, Answered, Trapped, Fatal>;
  Verdict judge(const Call& call) const { return strict_ || filters_ ? judge_confined(call) : Allowed{}; }
  // The system calls, by number, that are not allowed for all arguments.
  const std::array<uint64_t, gate::kCallWords>& restricted() const;

  // Another thread of the process.
  struct Other {
    pid_t tid = -1;
    Confinement* confinement = nullptr;
  };
  struct Caller {
    pid_t tid = -1;
    const Memory& memory;
    std::span<const Other> others;
  };
  struct Reply {
    int64_t result = 0;
    bool refused = false;  // the kernel has what was asked for, and a recording does not
  };
  // Answers a call by which the thread asks or changes what is forbidden (Special::seccomp).
  Reply answer(const Call& call, const Caller& caller);

  bool strict() const { return strict_; }
  bool no_new_privileges() const { return no_new_privileges_; }
  size_t filters() const { return filters_ ? filters_->count() : 0; }

 private:
  Verdict judge_confined(const Call& call) const;
  Reply answer_seccomp(const Call& call, const Caller& caller);
  Reply answer_prctl(const Call& call, const Caller& caller);
  int64_t set_strict();
  Reply add_filter(const Caller& caller, uint64_t flags, Address program);
  int64_t give_to(std::span<const Other> others, const std::shared_ptr<const ProgramFilters>& filters, bool as_error);

  bool strict_ = false;                            // SECCOMP_MODE_STRICT
  bool no_new_privileges_ = false;                 // as the program set it; in the kernel it is always set
  std::shared_ptr<const ProgramFilters> filters_;  // null: none
};

}  // namespace redrive
