// Signals to the recorder itself. Whoever sends one to it means the program, so each does to the program what it would
// do without a recorder: it is passed on, unless it was sent to the process group, as a
// terminal and timeout(1) do: then the program has it. None ends the recorder, but SIGKILL, and stop signals stop it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <vector>

namespace redrive {

// Installs the handlers, unblocks what they are for, and starts a timer that interrupts waitpid(2) at least this often,
// for work that is due. Before the program is launched.
inline constexpr std::chrono::microseconds kTick{10'000};
void catch_interrupts();
// The next time sooner.
void wake_within(std::chrono::microseconds time);
// In the child that becomes the program: dispositions and mask as they were before catch_interrupts().
void give_back_interrupts();

// What is to be sent on to the program: a signal is held back for a few milliseconds, until it is clear whether the
// group got it.
std::vector<int> take_interrupts();
// Whether this signal came to the recorder, from wherever.
bool was_interrupted_by(int signal);

}  // namespace redrive
