// Counts over events: what `ls` and `stats` show of a unit, an interval or a channel.
#pragma once

#include <cstdint>

#include "logstore/event.h"

namespace redrive {

struct Tally {
  uint64_t events = 0;           // a series counts once
  uint64_t messages = 0;         // receives of bytes that another unit sent
  uint64_t logged_messages = 0;  // ... whose payload is in the trace
  uint64_t message_bytes = 0;
  uint64_t logged_bytes = 0;
  uint64_t input_bytes = 0;  // memory that the kernel wrote, except message payloads

  void add(UnitId unit, const Event& event);
  void add(const Tally& other);
};

}  // namespace redrive
