// Work on several processors at once.
#pragma once

#include <cstddef>
#include <functional>

namespace redrive {

// How many processors this thread may run on; at least 1.
int processor_count();

// Calls `work` with each number below `count`, on as many threads as there are processors, in no particular order, and
// returns when all calls have. Where no thread can be made, it takes longer.
void for_each_in_parallel(size_t count, const std::function<void(size_t)>& work);

}  // namespace redrive
