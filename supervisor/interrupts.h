// Signals to the supervisor itself while it records: the first Ctrl-C (or SIGTERM) goes to the recorded program, the
// second ends it.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace redrive {

// Installs the handlers and a timer that interrupts waitpid(2) at least this often, for work that is due.
inline constexpr std::chrono::microseconds kTick{10'000};
void catch_interrupts();
// The next time sooner.
void wake_within(std::chrono::microseconds time);
void release_interrupts();

// Passes on what came since the last call: a signal sent to the supervisor alone is sent to `root`, one from the
// terminal has reached the program already. How many came in all, 0 if none is new: from the second on the caller ends
// the recording.
int pass_on_interrupts(pid_t root);

}  // namespace redrive
