// Opens files below a directory that a stranger may have filled. No link in the path is followed, whichever component
// it is, so nothing outside is reached (openat2(2), RESOLVE_BENEATH).
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"

namespace redrive {

// `name` is one file name, or several with slashes between them; none of them may be "." or "..". The file is opened
// with O_CLOEXEC, O_NONBLOCK and O_NOCTTY, so that a FIFO or a device blocks nobody. If it cannot be opened, returns an
// empty Fd and sets errno; ELOOP if there is a link in the path.
Fd open_beneath(int directory, const std::string& name, int flags, mode_t mode = 0);

// The same for kernels without openat2(2), and containers whose filter forbids it.
Fd open_beneath_by_steps(int directory, const std::string& name, int flags, mode_t mode = 0);

}  // namespace redrive
