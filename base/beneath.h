// Files below a directory that a stranger may have filled: no link there is followed, whatever component it is, so that
// nothing outside is reached (openat2(2), RESOLVE_BENEATH).
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"

namespace redrive {

// `name`: one file name, or several with slashes between them; none may be "." or "..". With O_CLOEXEC, O_NONBLOCK and
// O_NOCTTY, so that a FIFO or a device hangs nobody. None, with errno, if it cannot be opened; ELOOP if a link is
// there.
Fd open_beneath(int directory, const std::string& name, int flags, mode_t mode = 0);

// The same where the kernel has no openat2(2), or a container's filter forbids it.
Fd open_beneath_by_steps(int directory, const std::string& name, int flags, mode_t mode = 0);

}  // namespace redrive
