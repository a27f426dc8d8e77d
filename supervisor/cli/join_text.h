// Describes why processes that could have been several units are one.
#pragma once

#include <string>
#include <vector>

#include "logstore/trace.h"

namespace redrive {

// A sentence for each unit and object, in the order of the recording.
std::vector<std::string> describe_joins(const Trace& trace);

}  // namespace redrive
