// Files that redrive writes belong to its user alone, whatever umask(2) it was started with: traces hold what programs
// had in memory.
#pragma once

#include <sys/stat.h>

namespace redrive {

inline mode_t inherited_umask = 022;

inline void keep_files_private() { inherited_umask = umask(S_IRWXG | S_IRWXO); }

// For a program that is about to be executed.
inline void give_back_umask() { umask(inherited_umask); }

}  // namespace redrive
