// Messages whose contents are taken from a replay: those of receives that have been executed, because the contents are
// there then.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "base/result.h"
#include "logstore/event.h"

namespace redrive {

class WantedPayloads {
 public:
  // A receive is to be executed.
  void add(EventIndex receiver, std::vector<MessagePart> parts) { waiting_.push_back({receiver, std::move(parts)}); }

  using Read = std::function<Result<Bytes>(const MessagePart& part)>;
  using Take = std::function<Result<void>(EventIndex receiver, const Bytes& payload)>;
  // All events before `done` have been executed.
  Result<void> take(EventIndex done, const Read& read, const Take& take);

 private:
  struct Wanted {
    EventIndex receiver = 0;
    std::vector<MessagePart> parts;
  };
  std::deque<Wanted> waiting_;
};

}  // namespace redrive
