// The process that the user starts, if a recording attaches to others: the parent of the recorder. What the recorder
// has taken from the recorded processes stays away if it is killed, and would end some of them. The guard gives it
// back.
#pragma once

#include <optional>

#include "base/result.h"
#include "supervisor/record/attach/attachable.h"

namespace redrive {

// Makes a child, in which this returns nothing: the recorder. In the guard it returns when the recorder has ended, with
// its exit status; if it was killed, with an error, after the processes were healed. Signals are passed on to the
// recorder, except those that stop the guard; if the guard is killed, the recorder gets SIGTERM.
Result<std::optional<int>> guard_recorder(const AttachableTree& tree);

}  // namespace redrive
