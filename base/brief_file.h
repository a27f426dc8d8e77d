// Files that are opened to be read and closed at once.
#pragma once

#include <cerrno>
#include <string>

#include "base/fd.h"

namespace redrive {

// Whether a call has failed because there are too many open files, or no memory for another.
inline bool no_file_left(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

// open(2), to read. A descriptor is kept for when no others are left (no_file_left): what is known of a process
// by /proc alone must not be missed for that. The caller closes what it gets soon. Thread-safe.
Fd open_briefly(const std::string& path, int flags = 0);

// All that can be read of it; empty, with errno, if it cannot be opened.
std::string read_briefly(const std::string& path);

}  // namespace redrive
