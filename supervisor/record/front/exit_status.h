// Exit statuses of `record` that are its own, and not the program's: as env(1) and timeout(1) have them.
#pragma once

#include "base/result.h"

namespace redrive {

inline constexpr Status kCannotRecord{125};
inline constexpr Status kCannotExecute{126};
inline constexpr Status kNotFound{127};

}  // namespace redrive
