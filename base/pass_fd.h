// A descriptor, passed to another process over a socket (unix(7), SCM_RIGHTS).
#pragma once

namespace redrive {

// With one byte. False, with errno, if it could not be sent.
bool pass_fd(int socket, int fd);

}  // namespace redrive
