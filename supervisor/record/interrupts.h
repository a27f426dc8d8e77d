// Signals to redrive. Whoever sends one to it means the program, so each does to the program what it would do without a
// recorder. The front (front.h) passes on what it alone got; from when it has ended, what the recorder gets is passed
// on. None ends the recorder, but SIGKILL.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <vector>

namespace redrive {

inline constexpr int kSignals = 65;
// Whether redrive can get it in the program's place: not its own faults, its children's news, and what cannot be
// caught.
bool is_for_program(int signal);

// Installs the handlers, unblocks what they are for, and starts a timer that interrupts waitpid(2) at least this often,
// for work that is due. Before the program is launched.
inline constexpr std::chrono::microseconds kTick{10'000};
void catch_interrupts();
// The next time sooner.
void wake_within(std::chrono::microseconds time);
// In the child that becomes the program: dispositions and mask as they were handed to redrive.
void give_back_interrupts();

// What is to be sent on to the program.
std::vector<int> take_interrupts();
// Whether this signal came to redrive, from wherever.
bool was_interrupted_by(int signal);

}  // namespace redrive
