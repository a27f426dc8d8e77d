// Standard input, output and error that redrive was started without. Nothing of redrive's may get their numbers,
// because it reads, writes or replaces what has them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace redrive {

// Puts something there that fails as a closed descriptor does (EBADF), and that the program to be recorded does not
// inherit. Call this before anything else is opened.
inline void fill_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // It gets the lowest number that is free.
    static_cast<void>(open("/dev/null", (descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC));
  }
}

}  // namespace redrive
