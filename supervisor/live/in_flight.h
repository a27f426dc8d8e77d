// Which bytes of messages have been sent and not received. It does not know datagrams that nobody has received, nor
// empty ones, because nothing tells where they went; those of socket pairs are counted (OpenObject::packets).
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "logstore/event.h"

namespace redrive {

class InFlight {
 public:
  // Whether the last byte of a message is urgent (send(2), MSG_OOB).
  enum class Urgent : uint8_t {
    no,
    yes,     // it can be received
    taken,   // it was received ahead of other bytes, and reads still stop at its place
    passed,  // others were received after its place, so that it is gone
  };
  // A part of what an event has sent.
  struct Piece {
    EventRef send;
    uint64_t offset = 0;
    uint64_t length = 0;
    uint64_t at_ns = 0;  // when it was sent
    uint64_t channel = 0;
    bool rest = false;           // something of it was received
    Urgent urgent = Urgent::no;  // of this part's last byte
    bool awaits_receipt() const { return urgent == Urgent::no || urgent == Urgent::yes; }
  };

  // In any order. A receive that leaves the bytes where they are (MSG_PEEK) must not be noted.
  // `urgent`: with MSG_OOB.
  void sent(EventRef event, const Send& send, uint64_t at_ns, bool urgent = false);
  void received(const Receive& receive, bool urgent = false);

  // What is on its way in a channel, in the order of sending; of several senders, as far as times tell.
  std::vector<Piece> pieces(uint64_t channel) const;
  // The same of these sends, whatever their channels.
  std::vector<Piece> pieces(const std::set<EventRef>& sends) const;

 private:
  struct Message {
    uint64_t channel = 0;
    uint64_t length = 0;
    uint64_t at_ns = 0;
    bool sent = false;
    bool urgent = false;
    std::map<uint64_t, uint64_t> received;  // where parts begin: their lengths
    uint64_t received_bytes = 0;
  };
  void forget_if_whole(EventRef event);
  bool has_passed(EventRef event, uint64_t channel) const;
  template <typename Wanted>
  std::vector<Piece> pieces_if(const Wanted& wanted) const;

  std::map<EventRef, Message> messages_;
  // By channel and sender: the last event of which ordinary bytes were received.
  std::map<std::pair<uint64_t, UnitId>, EventIndex> reached_;
};

}  // namespace redrive
