// When signals were sent in a recording, by whom, and when they have arrived. It finds the send on which a receipt
// depends.
//
// The events do not tell that. Their times do, as far as they are known: of calls that were served in process, to a
// millisecond or so. So a signal is taken to be the first one that can have been sent before it arrived. When a process
// that ends sends SIGCHLD is not known at all, only that this is after its last event, and before a wait returns it.
//
// Signals of any other origin, such as the end of a parent (PR_SET_PDEATHSIG) or of a terminal, are not known here, so
// that one that was sent may come again in a process that lives. So may a signal that came within a millisecond after
// another of its kind from another process.
#pragma once

#include <map>
#include <vector>

#include "logstore/event.h"

namespace redrive {

struct SignalLog {
  struct Sent {
    EventRef at;
    EventTime time;
    int number = 0;
    int32_t to = 0;          // the number of a process, or
    bool to_thread = false;  // ... of a thread
    int32_t ended = 0;       // the process that has ended with the event, if that has sent the signal
  };
  struct Received {
    EventRef at;
    EventTime time;
    int number = 0;
    int32_t process = 0, thread = 0;  // their numbers
  };
  struct Wait {
    EventRef at;
    int32_t pid = 0;  // which had ended
  };
  std::vector<Sent> sent;  // those of one unit in their order, as here:
  std::vector<Received> received;
  std::vector<Wait> waits;
  std::map<UnitId, EventRef> births;  // of units, by calls of others
};

// By receipt, the sends that have happened before it, of units other than the receiver's. Of several that can have been
// sent before it arrived, these are those that certainly were or, if none was, the earliest. A send is named for the
// first receipt after it only.
using SignalCauses = std::multimap<EventRef, EventRef>;
SignalCauses causes_of_signals(const SignalLog& log);

}  // namespace redrive
