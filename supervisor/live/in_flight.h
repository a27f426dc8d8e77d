// Which bytes of messages have been sent and not received.
#pragma once

#include <map>
#include <set>
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
    uint64_t channel = 0;
    bool rest = false;  // something of it was received
  };

  // In any order. A receive that leaves the bytes where they are (MSG_PEEK) must not be noted.
  void sent(EventRef event, const Send& send, uint64_t at_ns);
  void received(const Receive& receive);

  // What is on its way in a channel, in the order of sending.
  std::vector<Piece> pieces(uint64_t channel) const;
  // The same of these sends, whatever their channels.
  std::vector<Piece> pieces(const std::set<EventRef>& sends) const;

 private:
  struct Message {
    uint64_t channel = 0;
    uint64_t length = 0;
    uint64_t at_ns = 0;
    bool sent = false;
    std::map<uint64_t, uint64_t> received;  // where parts begin: their lengths
    uint64_t received_bytes = 0;
  };
  void forget_if_whole(EventRef event);
  template <typename Wanted>
  std::vector<Piece> pieces_if(const Wanted& wanted) const;

  std::map<EventRef, Message> messages_;
};

}  // namespace redrive
