// Messages that race: which message of a unit another unit can receive first, and where it must stand for that.
//
// A message races with others as long as its receiver has not begun to receive it, and nothing that it depends on comes
// after the place of the receiver. The receiver stands where it can still choose: a read from a channel of its own has
// been chosen by the poll(2), or accept(2), before it. The end of a stream is not a message: the receiver may see that
// another sender has closed its end, if nothing of that sender is on its way, before it gets the message.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "logstore/trace.h"
#include "supervisor/live/past.h"
#include "supervisor/plan/breakpoint.h"

namespace redrive {

// What is asked for: where a unit receives one of several messages, that of this sender comes first.
struct FirstWanted {
  EventRef at;
  UnitId sender = 0;
};

struct Delivery {
  EventRef before;   // the receiver stands there
  EventRef message;  // the send
};

// What a unit has done to receive something.
struct Reception {
  enum class Kind : uint8_t {
    wait,     // for one of several descriptors, and there was one: poll(2), select(2), epoll_wait(2)
    accept,   // of a connection
    receive,  // of a message
    test,     // whether there was something to receive, and there was nothing
  };
  Kind kind = Kind::wait;
  EventIndex at = 0;       // when it had its result
  EventIndex entered = 0;  // the same, if nothing else happened meanwhile
  ThreadSerial thread = 0;
  int descriptor = -1;   // from which it has received; or that of a connection that it has accepted
  uint64_t channel = 0;  // 0: of datagrams
  std::vector<EventRef> sends;
};

// A message to the unit that nobody has received.
struct Unreceived {
  EventRef send;
  uint64_t channel = 0;
};

// `receptions`: of the receiver, in their order. `unreceived`: of the sender. An Error says why no message of the
// sender can come first there.
Result<Delivery> choose_delivery(const std::vector<Reception>& receptions, const std::vector<Unreceived>& unreceived,
                                 const FirstWanted& wanted);

// The same, from a trace. `later`: the past of its end.
Result<Delivery> find_delivery(const Trace& trace, const Communication& communication, const Past& later,
                               const FirstWanted& wanted);

// Lets a breakpoint at which the receiver stands before its place also hold the message, as if it were received there.
// So the sender has sent it, and whatever that needed has happened; all others stand as early as they can. An Error if
// the message depends on what the receiver does at its place or later.
Result<void> add_delivery(const Delivery& delivery, Communication& communication);

}  // namespace redrive
