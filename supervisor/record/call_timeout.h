// The timeout of the call that a thread makes, if the recorder has woken the thread there and the kernel enters the
// call again: then it sleeps for what is left, and not for all of it once more. The program finds its own timeout at
// the call's exit, in the register or memory where it was.
//
// Where the kernel itself knows when such a call is over (nanosleep(2)), or nobody knows when it began (a socket's
// timeout), there is nothing to do.
#pragma once

#include <time.h>

#include <array>
#include <cstdint>
#include <optional>

#include "base/remote.h"
#include "interceptors/syscall_table.h"
#include "supervisor/record/tracer.h"

namespace redrive {

class CallTimeout {
 public:
  struct Call {
    const SyscallRow* row = nullptr;  // null if it has none
    const std::array<uint64_t, 6>& args;
    const Memory& memory;  // of the program
  };
  // What stands elsewhere in memory while the call lasts.
  struct Own {
    Address at = 0;
    timespec timeout{};
  };

  // The thread enters a call. If it is one that it enters again, less is left: in memory that is put in place of the
  // program's timeout here; for a register it is returned, in ms, and the caller puts it there.
  std::optional<uint64_t> enter(const Call& call, Clock::time_point now);
  // The thread has entered a call that was not seen then.
  void entered_at(Clock::time_point then) { entered_at_ = then; }
  // The kernel ends the call only to enter it again.
  void enters_again(const Call& call);
  // A handler runs first: the thread's next call is another one.
  void forget() { enters_again_ = false; }

  // At the exit: whether the register is to hold the program's own again.
  bool take_shortened();
  // What is to stand in memory at the exit.
  const std::optional<Own>& own() const { return own_; }
  std::optional<Own> take_own();

 private:
  Clock::time_point entered_at_{};             // the current call
  std::optional<Clock::time_point> deadline_;  // of the call that was woken
  bool enters_again_ = false;                  // ... and that is the thread's next one
  bool shortened_ = false;
  std::optional<Own> own_;
};

}  // namespace redrive
