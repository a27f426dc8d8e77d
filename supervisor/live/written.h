// What a call has written into the program's memory, by its event.
#pragma once

#include <cstring>

#include "logstore/event.h"

namespace redrive {

// The value at this address; false if the event does not hold it.
template <typename T>
bool written(const Event& event, uint64_t address, T& value) {
  for (const MemoryWrite& write : event.writes) {
    const bool holds = address >= write.address && address - write.address + sizeof value <= write.data.size();
    if (!holds) continue;
    std::memcpy(&value, write.data.data() + (address - write.address), sizeof value);
    return true;
  }
  return false;
}

}  // namespace redrive
