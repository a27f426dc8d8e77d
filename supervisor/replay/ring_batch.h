// Consecutive events of one thread that lie in the ring of its address space and have not been executed.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "supervisor/replay/call_watch.h"
#include "supervisor/replay/redriving.h"
#include "supervisor/replay/site_patcher.h"
#include "supervisor/replay/unit_messages.h"

namespace redrive {

// How an event is answered: by the code inside tracees, from the ring, or by the supervisor while its thread is
// stopped.
enum class Answer : uint8_t { in_ring, at_stop };

class RingBatch {
 public:
  // `shows_sends`: what the unit sends is to be shown, which only the supervisor can. `watch`: calls that only the
  // supervisor can show to it; may be null.
  RingBatch(const Redriving& redriving, SitePatcher& patcher, UnitMessages& messages, bool shows_sends,
            const CallWatch* watch)
      : redriving_(redriving), patcher_(patcher), messages_(messages), shows_sends_(shows_sends), watch_(watch) {}

  struct Events {
    ThreadSerial thread = 0;
    EventIndex first = 0;
    Gate* gate = nullptr;
    std::vector<uint64_t> ends;  // of each, in the ring
    bool changes_memory = false;
    std::vector<std::pair<size_t, Address>> breaks;  // the process's break, after this many of them
  };

  // Puts the event into the ring, unless it must stop, or does not fit those that are there.
  Result<Answer> add(EventIndex index, const Event& event);
  bool empty() const { return events_.ends.empty(); }
  ThreadSerial thread() const { return events_.thread; }
  // Takes those that are there, to be executed.
  Events take() { return std::exchange(events_, {}); }

 private:
  Result<std::optional<uint64_t>> put(EventIndex index, const Event& event, uint64_t start, uint64_t times);
  Result<std::optional<std::vector<gate::InjectedCall>>> calls_of(const Event& event, Special special) const;

  const Redriving& redriving_;
  SitePatcher& patcher_;
  UnitMessages& messages_;
  const bool shows_sends_;
  const CallWatch* const watch_;
  Events events_;
};

}  // namespace redrive
