// A ring of messages: memory that is used again for what one interval sends to the same receivers. New memory costs
// more than to copy a message into it, so where intervals exchange gigabytes it would decide how long a replay takes. A
// message that finds no room in the ring goes to a place of its own, so no sender depends on its receivers. That is
// rare: sockets and pipes hold less than a ring, so a receiver is further behind only if a replay executes it later.
#pragma once

#include "interceptors/inprocess/layout.h"

namespace redrive::gate {

inline bool is_in(const MessageRing& ring, const Message& message) {
  return message.offset >= ring.start && message.offset - ring.start < ring.size;
}

// Puts message `index`, which is about to be sent, in the ring if there is room. Before it, its sender has sent the
// other messages of the ring, in the order of the table.
inline bool place_in(MessageRing& ring, Message* table, uint64_t index) {
  const auto is_free = [&](const Message& message) {
    return !is_in(ring, message) || __atomic_load_n(&message.uses, __ATOMIC_SEQ_CST) == 0;
  };
  while (ring.oldest < index && is_free(table[ring.oldest])) ++ring.oldest;
  Message& message = table[index];
  uint64_t at = 0, end = ring.size;  // free memory
  if (ring.oldest < index) {
    const uint64_t oldest = table[ring.oldest].offset - ring.start;
    at = ring.head;
    if (at <= oldest) {
      end = oldest;
    } else if (message.capacity > ring.size - at) {
      at = 0, end = oldest;
    }
    // The head never reaches the oldest one: it would look as if all were free.
    if (end == oldest && message.capacity == end - at) return false;
  }
  if (message.capacity > end - at) return false;
  ring.head = at + message.capacity;
  message.offset = ring.start + at;
  return true;
}

// A receive has taken what it wanted of message `index`. True if the sender waits for that, and has to be woken.
inline bool end_use(MessageRing& ring, Message& message, uint64_t index) {
  if (__atomic_fetch_sub(&message.uses, 1, __ATOMIC_SEQ_CST) != 1) return false;
  if (__atomic_load_n(&ring.waits, __ATOMIC_SEQ_CST) == 0) return false;
  if (index < __atomic_load_n(&ring.awaited, __ATOMIC_SEQ_CST)) return false;
  return __atomic_exchange_n(&ring.waits, 0, __ATOMIC_SEQ_CST) == 1;
}

}  // namespace redrive::gate
