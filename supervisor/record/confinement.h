// What a program has forbidden one of its threads by seccomp(2) and prctl(2).
//
// The kernel never has the program's filters, because it would apply them to the recorder's own calls as well. They are
// kept here, and asked at the entry of each call that they may forbid. It says what becomes of the call, as the kernel
// would, and does nothing about it. In replay the recorded results, signals and ends are all that is needed.
//
// Threads and programs inherit it: a copy is the other thread's own.
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
  // A thread that nothing is forbidden. `no_new_privileges`: as prctl(2) answers.
  explicit Confinement(bool no_new_privileges = false) : no_new_privileges_(no_new_privileges) {}

  // A call at its entry.
  struct Call {
    const SyscallRow* row = nullptr;  // null if it has none
    uint64_t number = 0;
    Address ip = 0;  // behind the instruction
    const std::array<uint64_t, 6>& args;
  };
  // What becomes of a call: the kernel makes it,
  struct Allowed {};
  // it has this result without being made,
  struct Answered {
    int64_t result = 0;
  };
  // the thread gets this signal if it has a handler for it, and the call has this result; else the process ends,
  struct Trapped {
    siginfo_t info{};
    int64_t result = 0;
  };
  // or the thread ends, or its process, as if by this signal.
  struct Fatal {
    int signal = 0;
    bool whole_process = false;
  };
  using Verdict = std::variant<Allowed, Answered, Trapped, Fatal>;
  Verdict judge(const Call& call) const { return strict_ || filters_ ? judge_confined(call) : Allowed{}; }
  // The calls, by number, that it does not allow whatever their arguments are.
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
    bool refused = false;  // what was asked for is not there while the program is recorded
  };
  // Answers a call by which the thread asks or says what is forbidden (Special::seccomp).
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
  bool no_new_privileges_ = false;                 // as the program has set it; the kernel's is always set
  std::shared_ptr<const ProgramFilters> filters_;  // null: none
};

}  // namespace redrive
