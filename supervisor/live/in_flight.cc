#include "supervisor/live/in_flight.h"

#include <algorithm>

namespace redrive {

void InFlight::sent(EventRef event, const Send& send, uint64_t at_ns) {
  if (send.channel == 0 || send.length == 0) return;
  Message& message = channels_[send.channel][event];
  message.sent = true;
  message.length = send.length;
  message.at_ns = at_ns;
  forget_if_whole(send.channel, event);
}

void InFlight::received(const Receive& receive) {
  for (const MessagePart& part : receive.parts) {
    if (part.sender.unit == 0) continue;
    Message& message = channels_[receive.channel][part.sender];
    message.received[part.offset] += part.length;
    message.received_bytes += part.length;
    forget_if_whole(receive.channel, part.sender);
  }
}

void InFlight::forget_if_whole(uint64_t channel, EventRef event) {
  auto& messages = channels_.at(channel);
  const Message& message = messages.at(event);
  if (message.sent && message.received_bytes >= message.length) messages.erase(event);
}

std::vector<InFlight::Piece> InFlight::pieces(uint64_t channel) const {
  std::vector<Piece> all;
  const auto found = channels_.find(channel);
  if (found == channels_.end()) return all;
  for (const auto& [event, message] : found->second) {
    if (!message.sent) continue;
    uint64_t at = 0;
    const auto add = [&](uint64_t end) {
      if (end > at) all.push_back({event, at, end - at, message.at_ns});
    };
    for (const auto& [offset, length] : message.received) {
      add(offset);
      at = std::max(at, offset + length);
    }
    add(message.length);
  }
  std::stable_sort(all.begin(), all.end(), [](const Piece& a, const Piece& b) { return a.at_ns < b.at_ns; });
  return all;
}

}  // namespace redrive
