// Who talks to whom: how many messages and bytes each unit has received from every other unit.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "logstore/event.h"

namespace redrive {

class Talks {
 public:
  struct Talk {
    UnitId from = 0, to = 0;
    uint64_t messages = 0, bytes = 0;
  };

  // `begins`: the first byte of a message was among them.
  void add(UnitId from, UnitId to, uint64_t bytes, bool begins) {
    Talk& talk = talks_[uint64_t{from} << 32 | to];
    talk.messages += begins;
    talk.bytes += bytes;
  }
  // The unit has ended. What it has said is forgotten when many units have ended since.
  void end(UnitId unit);
  // Sorted by sender and receiver.
  std::vector<Talk> all() const;

 private:
  std::unordered_map<uint64_t, Talk> talks_;  // by sender and receiver
  std::vector<UnitId> ended_;
};

}  // namespace redrive
