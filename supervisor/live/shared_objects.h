// Memory that processes of a unit have mapped shared, for those that are to live: each is copied into a memory object,
// also a System V segment, which shmdt(2) then does not know.
#pragma once

#include <map>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "checkpoint/unit_state.h"
#include "logstore/event.h"

namespace redrive {

class LiveShared {
 public:
  // Copies the objects that a process of the unit shows.
  Result<void> add(UnitId unit, const ProcessState& process, const Memory& memory);
  // All of them, in the order of their numbers.
  std::vector<int> descriptors() const;
  size_t index_of(UnitId unit, uint64_t object) const;

 private:
  using Name = std::pair<UnitId, uint64_t>;
  std::map<Name, Fd> objects_;
};

}  // namespace redrive
