// The messages that the events of one re-driven unit send and receive, on top of the store that it shares with all that
// are re-driven together.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "interceptors/inprocess/layout.h"
#include "supervisor/replay/message_store.h"

namespace redrive {

// A received message is not what was recorded.
struct OtherContents {
  std::string expected, found;
};

class UnitMessages {
 public:
  UnitMessages(UnitId unit, MessageStore& store) : unit_(unit), store_(store) {}

  // The index in the store's table of what this event sends; none if no interval needs it.
  std::optional<uint64_t> sent_by(EventIndex event) { return store_.payloads().index({unit_, event}, sent_); }
  void publish(EventIndex event, const Bytes& payload) { store_.publish({unit_, event}, payload); }

  // The bytes of a message that is in no log, for its receive. Waits until they have been sent.
  Result<std::variant<Bytes, OtherContents>> received(const Receive& receive);
  // Where the bytes will be; none if the store does not have them all.
  std::optional<std::vector<gate::Part>> places_of(const Receive& receive);

 private:
  const UnitId unit_;
  MessageStore& store_;
  PayloadTable::Hint sent_ = 0, received_ = 0;
};

}  // namespace redrive
