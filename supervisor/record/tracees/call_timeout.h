// The timeout of a call in which the recorder has woken the thread, and which the kernel enters again: the call still
// ends when its time is over, counted from when it was first entered.
//
// The kernel is given what is left of a timeout in a register, and the program finds its own there at the exit. Where
// it is in memory, or an option of the call's socket, others may use it meanwhile: the call would sleep for all of it
// again, but the recorder ends the call when it is over. There is nothing to do if the kernel itself knows when that is
// (nanosleep(2); ppoll(2), if it can write what is left).
#pragma once

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

  // The thread enters a call. If it enters the call again and the timeout is in a register, returns what is left, in
  // ms, and the caller puts it there.
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

 private:
  Clock::time_point entered_at_{};            // the current call
  std::optional<Clock::time_point> ends_at_;  // the call that was woken
  bool enters_again_ = false;                 // that call is the thread's next one
  bool shortened_ = false;
};

}  // namespace redrive
