// Comparison of a re-driven process's memory with a checkpoint.
#pragma once

#include <optional>

#include "base/result.h"
#include "checkpoint/address_space.h"
#include "checkpoint/stub.h"
#include "checkpoint/unit_state.h"
#include "logstore/trace.h"

namespace redrive {

// The first address at which the process differs from what the image says of it; none if every byte that either holds
// is equal, apart from those in `except`.
Result<std::optional<Address>> memory_difference(const Trace& trace, const Image& image, const UnitState& state,
                                                 const ProcessState& process, const Stub& stub,
                                                 const std::vector<AddressRange>& except);

}  // namespace redrive
