// The front: the process that the user has started and waits for. It does nothing but stand for the program, while the
// recorder works as its child: it ends with the program's exit status, even if the recording of what the program left
// behind continues; it stops when the program does; and it passes on to the program the signals that were sent to it
// alone, but not those to its process group, because the program has them already.
//
// The two communicate through memory that they share, and wake each other with SIGALRM and SIGCHLD.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <optional>

#include "base/result.h"

namespace redrive {

// Becomes two processes. In the front it returns when the front is to end, with the exit status of the program, or of
// the recorder if that has failed and said why. In the recorder it returns at once, with nullopt. If the front is
// killed, so is the recorder. `standard_error`: the descriptor that takes its place in the front.
Result<std::optional<int>> stand_in_front(int standard_error = STDERR_FILENO);

// The functions below are for the recorder.

// Whether there is a front.
bool has_front();
// Its number; 0 if there never was one. It stays the same when the front has ended.
pid_t front_process();
// How often the front alone was sent this signal since the last call.
unsigned take_from_front(int signal);
// The program was stopped by this signal, or continues.
void stop_front(int signal);
void continue_front();
// The program has ended and the recording continues: the front ends with this status. The recorder lets go of
// everything that the user handed to redrive, that is, its session and its descriptors, including standard error.
void release_front(int exit_status);
// Closes the descriptors that were handed to redrive, except standard error: the program has them now.
void close_inherited();
// The mask of blocked signals, and what becomes of SIGCHLD, as they were handed to redrive.
const sigset_t& inherited_mask();
const struct sigaction& inherited_child_action();

}  // namespace redrive
