#include "supervisor/plan/tally.h"

#include <algorithm>

#include "supervisor/plan/graph.h"

namespace redrive {

void Tally::add(UnitId unit, const Event& event) {
  ++events;
  uint64_t stored = 0;
  for (const auto& write : event.writes) stored += write.from_message() ? 0 : write.data.size();
  uint64_t payload = 0;  // bytes of a message's payload among `stored`
  if (event.receive && is_message(unit, *event.receive)) {
    const uint64_t length = event.receive->length();
    ++messages;
    message_bytes += length;
    if (event.receive->logged) {
      ++logged_messages;
      logged_bytes += length;
      payload = std::min(length, stored);
    }
  }
  if (event.kind == EventKind::syscall || event.kind == EventKind::exit) input_bytes += stored - payload;
}

void Tally::add(const Tally& other) {
  events += other.events;
  messages += other.messages;
  logged_messages += other.logged_messages;
  message_bytes += other.message_bytes;
  logged_bytes += other.logged_bytes;
  input_bytes += other.input_bytes;
}

}  // namespace redrive
