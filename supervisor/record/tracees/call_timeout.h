// The timeout of a call in which the recorder has woken the thread, and which the kernel enters again: the call then
// sleeps for what is left, and not for the whole time again. At the call's exit the program finds its own timeout, in
// the register or memory where it was.
//
// A socket's timeout is none of the call's own: the call sleeps for all of it again, unless the recorder ends it when
// it is over. There is nothing to do if the kernel itself knows when a call is over (nanosleep(2)).
#pragma once

#include <time.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

#include "base/remote.h"
#include "interceptors/syscall_table.h"
#include "supervisor/record/kernel/tracer.h"

namespace redrive {

class CallTimeout {
 public:
  struct Call {
    const SyscallRow* row = nullptr;  // null if it has none
    const std::array<uint64_t, 6>& args;
    const Memory& memory;  // of the program
  };
  // The program's own timeout, in whose place memory holds what is left of it while the call lasts.
  struct Own {
    Address at = 0;
    timespec timeout{};
  };

  // The thread enters a call. If it enters the call again, less time is left: a timeout in memory is replaced here by
  // what is left; for one in a register, what is left is returned, in ms, and the caller puts it there.
  std::optional<uint64_t> enter(const Call& call, Clock::time_point now);
  // Says when the thread entered its call, if that was not seen at the time.
  void entered_at(Clock::time_point then) { entered_at_ = then; }
  // The kernel ends the call only to enter it again. `of_socket`: how long it may sleep by its socket's timeout.
  void enters_again(const Call& call, std::optional<std::chrono::nanoseconds> of_socket = {});
  // The call has transferred something, and transfers the rest. It may sleep that long for it.
  void goes_on(Clock::time_point now, std::optional<std::chrono::nanoseconds> of_socket);
  // Whether the recorder has to end the call by then.
  bool is_over(Clock::time_point by) const { return ends_at_ && by >= *ends_at_; }
  // The call has ended.
  void left();
  // A handler runs first: the thread's next call is another one.
  void forget() { enters_again_ = false; }

  // At the exit: whether the program's own timeout must be put back into the register.
  bool take_shortened();
  // What must be put back into memory at the exit.
  const std::optional<Own>& own() const { return own_; }
  std::optional<Own> take_own();

 private:
  Clock::time_point entered_at_{};             // the current call
  std::optional<Clock::time_point> deadline_;  // of the call that was woken
  bool enters_again_ = false;                  // that call is the thread's next one
  std::optional<Clock::time_point> ends_at_;   // the call, by its socket's timeout
  bool shortened_ = false;
  std::optional<Own> own_;
};

}  // namespace redrive
