// In words: what put processes into one unit that could have been several.
#pragma once

#include <string>
#include <vector>

#include "logstore/trace.h"

namespace redrive {

// A sentence for each unit and object, in the order of the recording.
std::vector<std::string> describe_joins(const Trace& trace);

}  // namespace redrive
