// The front: the process that the user has started, and that whoever started it waits for. It does nothing but stand
// for the program, while the recorder works as its child: it ends with the program's exit status, also if the recording
// of what the program left behind goes on; it stops when the program does; and signals to it alone go to the program,
// but those to its process group do not, because the program has them already.
//
// The two tell each other by memory that they share, and wake each other by SIGALRM and SIGCHLD.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>

#include "base/result.h"

namespace redrive {

// Becomes two processes. In the front it returns when that is to end, with the program's exit status, or the
// recorder's, which has said why. In the recorder it returns nothing, and at once. If the front is killed, so is the
// recorder.
Result<std::optional<int>> stand_in_front();

// What follows is for the recorder.

// Whether there is a front.
bool has_front();
// How often it alone was sent this signal since the last call.
unsigned take_from_front(int signal);
// The program was stopped by this signal, or goes on.
void stop_front(int signal);
void continue_front();
// The program has ended and the recording goes on: the front ends with this status. Nothing that the user handed to
// redrive, as descriptors or by its session, is held any longer: standard error is gone.
void release_front(int exit_status);
// Closes what was handed to redrive, but for standard error: the program has it now.
void close_inherited();
// The mask of blocked signals, and what becomes of SIGCHLD, as they were handed to redrive.
const sigset_t& inherited_mask();
const struct sigaction& inherited_child_action();

}  // namespace redrive
