// A re-driven unit that stands stopped on its way: what there is to look at, and what tells it where to stop.
#pragma once

#include <signal.h>

#include <functional>
#include <map>
#include <optional>

#include "base/remote.h"
#include "base/result.h"
#include "checkpoint/unit_state.h"
#include "logstore/event.h"

namespace redrive {

// As the program would find itself: its own code where the in-process tier had replaced it, its own registers. Only for
// the thread that traces it, while it stands.
struct StoppedUnit {
  struct Thread {
    ProcessSerial process = 0;
    pid_t tid = -1;           // the stub's
    user_regs_struct regs{};  // at the instruction that makes the next event; after its system call if it is in one
    bool in_call = false;     // entered, its exit is an event to come
  };
  UnitId unit = 0;
  EventIndex event = 0;                // the next one
  std::optional<ThreadSerial> thread;  // which makes it; none: the recording ends here
  std::map<ThreadSerial, Thread> threads;
  std::map<ProcessSerial, const Memory*> memories;
  // What the thread that makes the next event has run into, if that event is the signal of an instruction that faults.
  std::optional<siginfo_t> fault = {};
  std::function<Result<UnitState>()> state = {};  // reads what an image of this place would hold besides pages
};

// Tells one re-driven interval where to stop. Called by the thread that re-drives it.
class Halt {
 public:
  virtual ~Halt() = default;
  // The event to stop before, which is not earlier than the one where it stands; none: it continues to its end without
  // standing again.
  virtual std::optional<EventIndex> next() = 0;
  // Whether it is looked at where it stands; if not, there is nothing in the StoppedUnit but its place.
  virtual bool shown() const = 0;
  // What a unit that stood is to do.
  enum class Then : uint8_t { go_on, end };
  // It stands there until this returns.
  virtual Then stand(const StoppedUnit& unit) = 0;
};

}  // namespace redrive
