// Where the recorder finds the files that a thread's call names. They need not exist.
#pragma once

#include <string>

#include "supervisor/record/tracees/tracee.h"

namespace redrive {

// `arg`: an argument that is a path. The one before it, if that is a descriptor, is what it is relative to.
std::string named_path(const Thread& thread, size_t arg);
// The file of execve(2) and execveat(2).
std::string executed_path(const Thread& thread);

}  // namespace redrive
