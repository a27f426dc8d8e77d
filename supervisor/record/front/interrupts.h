// Signals to redrive. They are meant for the program, so each has the effect on the program that it would have without
// a recorder. The front (front.h) passes on what it alone got; once the front has ended, what the recorder gets is
// passed on. Only SIGKILL ends the recorder.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <vector>

namespace redrive {

inline constexpr int kSignals = 65;
// Whether redrive can get this signal in the program's place. False for redrive's own faults, news of its children, and
// signals that cannot be caught.
bool is_for_program(int signal);

// Installs the handlers, unblocks what they are for, and starts a timer that interrupts waitpid(2) at least this often,
// for work that is due. Call this before the program is launched.
inline constexpr std::chrono::microseconds kTick{10'000};
void catch_interrupts();
// Makes the timer interrupt after this time, and then again and again: every kTick, or after the same time if that is
// longer.
void wake_within(std::chrono::microseconds time);
// Interrupts a system call in which the thread of this process sleeps.
void wake_thread(pid_t tid);
// In the child that becomes the program: restores the dispositions and the mask that were handed to redrive.
void give_back_interrupts();

// What is to be sent on to the program.
std::vector<int> take_interrupts();
// How often this signal has come to redrive so far, also with the program's group. Those that the front alone was sent
// count once they were taken.
unsigned times_interrupted_by(int signal);

}  // namespace redrive
