// Which bytes of messages have been sent and not received.
#pragma once

#include <map>
#include <vector>

#include "logstore/event.h"

namespace redrive {

class InFlight {
 public:
  // A part of what an event has sent.
  struct Piece {
    EventRef send;
    uint64_t offset = 0;
    uint64_t length = 0;
    uint64_t at_ns = 0;  // when it was sent
  };

  // In any order. A receive that leaves the bytes where they are (MSG_PEEK) must not be noted.
  void sent(EventRef event, const Send& send, uint64_t at_ns);
  void received(const Receive& receive);

  // What is on its way in a channel, in the order of sending.
  std::vector<Piece> pieces(uint64_t channel) const;

 private:
  struct Message {
    uint64_t length = 0;
    uint64_t at_ns = 0;
    bool sent = false;
    std::map<uint64_t, uint64_t> received;  // where parts begin: their lengths
    uint64_t received_bytes = 0;
  };
  void forget_if_whole(uint64_t channel, EventRef event);

  std::map<uint64_t, std::map<EventRef, Message>> channels_;
};

}  // namespace redrive
