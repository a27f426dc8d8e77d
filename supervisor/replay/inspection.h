// What a stopped unit shows: registers, stacks, memory.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "base/result.h"
#include "supervisor/replay/divergence.h"
#include "supervisor/replay/stopped_unit.h"

namespace redrive {

// General registers by name, in hexadecimal.
nlohmann::ordered_json registers_json(const user_regs_struct& regs);

// The thread of that serial, or the one that makes the next event; fails if there is none.
Result<StoppedUnit::Thread> thread_of(const StoppedUnit& unit, std::optional<ThreadSerial> serial);

// Memory of the process of the thread that makes the next event; fails if some of it cannot be read.
Result<Bytes> memory_of(const StoppedUnit& unit, Address address, uint64_t length);

// Sixteen bytes a line as xxd(1) prints them, with the addresses that the program has them at.
std::string hex_dump(Address address, std::span<const uint8_t> bytes);

}  // namespace redrive
