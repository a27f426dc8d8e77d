#include "supervisor/live/in_flight.h"

#include <algorithm>

namespace redrive {

void InFlight::sent(EventRef event, const Send& send, uint64_t at_ns, bool urgent) {
  if (send.channel == 0 || send.length == 0) return;
  Message& message = messages_[event];
  message.sent = true;
  message.urgent = urgent;
  message.channel = send.channel;
  message.length = send.length;
  message.at_ns = at_ns;
  forget_if_whole(event);
}

void InFlight::received(const Receive& receive, bool urgent) {
  for (const MessagePart& part : receive.parts) {
    if (part.sender.unit == 0) continue;
    Message& message = messages_[part.sender];
    message.received[part.offset] += part.length;
    message.received_bytes += part.length;
    if (!urgent) {
      EventIndex& reached = reached_[{receive.channel, part.sender.unit}];
      reached = std::max(reached, part.sender.event);
    }
    forget_if_whole(part.sender);
  }
}

void InFlight::forget_if_whole(EventRef event) {
  const Message& message = messages_.at(event);
  if (message.sent && !message.urgent && message.received_bytes >= message.length) messages_.erase(event);
}

bool InFlight::has_passed(EventRef event, uint64_t channel) const {
  const auto reached = reached_.find({channel, event.unit});
  return reached != reached_.end() && reached->second > event.event;
}

template <typename Wanted>
std::vector<InFlight::Piece> InFlight::pieces_if(const Wanted& wanted) const {
  std::vector<Piece> all;
  for (const auto& [event, message] : messages_) {
    if (!message.sent || !wanted(event, message)) continue;
    uint64_t at = 0;
    const auto add = [&, &event = event, &message = message](uint64_t end) {
      if (end > at) all.push_back({event, at, end - at, message.at_ns, message.channel, message.received_bytes > 0});
    };
    for (const auto& [offset, length] : message.received) {
      add(offset);
      at = std::max(at, offset + length);
    }
    add(message.length);
    if (!message.urgent) continue;
    const bool passed = has_passed(event, message.channel);
    const bool waits =
        !all.empty() && all.back().send == event && all.back().offset + all.back().length == message.length;
    if (waits) {
      all.back().urgent = passed ? Urgent::passed : Urgent::yes;
    } else if (!passed) {
      all.push_back({event, message.length - 1, 1, message.at_ns, message.channel, true, Urgent::taken});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Piece& a, const Piece& b) { return a.at_ns < b.at_ns; });
  return all;
}

std::vector<InFlight::Piece> InFlight::pieces(uint64_t channel) const {
  return pieces_if([&](EventRef, const Message& message) { return message.channel == channel; });
}

std::vector<InFlight::Piece> InFlight::pieces(const std::set<EventRef>& sends) const {
  return pieces_if([&](EventRef event, const Message&) { return sends.contains(event); });
}

}  // namespace redrive
