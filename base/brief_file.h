// Files that are opened only to be read and are closed at once.
#pragma once

#include <cerrno>
#include <string>

#include "base/fd.h"

namespace redrive {

// Whether a call has failed because too many files are open, or because there is no memory for another one.
inline bool no_file_left(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

// Opens a file for reading (open(2)). One descriptor is reserved for when no others are left (no_file_left), because
// what is known of a process only from /proc must not be missed. The caller closes the file soon. Thread-safe.
Fd open_briefly(const std::string& path, int flags = 0);

// Everything that can be read from the file; empty, with errno, if it cannot be opened.
std::string read_briefly(const std::string& path);

}  // namespace redrive
