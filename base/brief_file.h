// Files that are opened to be read and closed at once.
#pragma once

#include <string>

#include "base/fd.h"

namespace redrive {

// open(2), to read. A descriptor is kept for when no others are left (EMFILE and the like): what is known of a process
// by /proc alone must not be missed for that. The caller closes what it gets soon. Thread-safe.
Fd open_briefly(const std::string& path, int flags = 0);

// All that can be read of it; empty, with errno, if it cannot be opened.
std::string read_briefly(const std::string& path);

}  // namespace redrive
