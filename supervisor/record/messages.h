// Messages between recorded processes: the owner of the channels, of the policy, and of the payloads that it has not
// decided about.
//
// A send is captured at its call's entry, because its bytes may be received before the call ends. A receive is matched
// at its exit: the bytes that it brought are either a message, whose payload stays in the event if the policy says so,
// or input, which is always logged. What is behind a descriptor is remembered with the process's descriptor table until
// the descriptor is closed.
//
// It knows neither threads nor units, but what a call is and where its event lies. Calls come in the order of events.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "interceptors/channels.h"
#include "interceptors/syscall_table.h"
#include "logstore/policy/policy.h"
#include "logstore/trace.h"
#include "supervisor/record/held_payloads.h"
#include "supervisor/record/interval_clock.h"
#include "supervisor/record/recorded_gate.h"

namespace redrive {

// A send on its way: what its receivers must know of it.
struct SendInfo {
  EventRef event;
  Tag tag;
  uint64_t at_ns = 0;  // Send::at_ns
};

// What is being sent by the call that a thread makes.
struct Sending {
  SendToken send;       // null: nothing, or nothing that is matched
  bool unheld = false;  // it sends more than is held for matching
  Endpoint to;
  std::vector<uint64_t> datagrams;  // their lengths

  // Another call begins.
  void clear() { send.reset(), unheld = false; }
};

class Messages {
 public:
  // Both must outlive it.
  Messages(TraceWriter& writer, Policy& policy);

  // A call, as far as it sends, receives, or makes and closes descriptors.
  struct Call {
    const SyscallRow& row;
    const std::array<uint64_t, 6>& args;
    const Memory& memory;  // at its entry or exit
    // The caller's process: its table, its pidfd, and its tier, which is null if nothing is served there.
    FdCache& descriptors;
    int pidfd = -1;
    RecordedGate* gate = nullptr;
  };
  // Where the event of a call lies.
  struct Place {
    UnitId unit = 0;
    EventIndex event = 0;
    IntervalClock& clock;  // of the unit
  };

  // ---- Descriptors
  // What is behind the descriptor in an argument, valid until the next call; null if that cannot be told.
  const Endpoint* endpoint(const Call& call, int fd_arg);
  // What the call closes. `served`: the code inside the tracee has seen to its own knowledge of that.
  static void forget_closed(const Call& call, bool served);
  // What the served call, which is over, has made.
  void note_made(const Call& call, const gate::Record& record);

  // ---- Events
  // A send's entry; `inputs` is what it reads. Its event is filled in.
  void begin_send(const Call& call, const Place& place, const std::vector<Span>& inputs, Sending& sending,
                  Event& event);
  // ... and its exit, or that of any other call.
  void end_send(Sending& sending, int64_t result);
  // What a call's exit has brought.
  struct Received {
    bool message = false;
    bool checkpoint_wanted = false;  // the policy wanted one to come before it
  };
  // The exit of any call. What its event has written that came from a message becomes a message, or input.
  Received receive(const Call& call, const Place& place, int64_t result, Event& event);
  // A child is born in a unit of its own, whose first interval has begun. That is a message too: whether it is kept, by
  // an image.
  bool keeps_birth(UnitId parent, uint64_t at_ns, UnitId child);

  // ---- Intervals, and the policy's wishes
  void begin_interval(UnitId unit, uint64_t ended_ns);
  // No event of the unit follows, whose last interval was so long.
  void end_unit(UnitId unit, uint64_t ended_ns);
  bool wants_checkpoint(UnitId unit, uint64_t at_ns) { return policy_.wants_checkpoint(unit, at_ns); }
  bool looks_for_place() const { return policy_.looks_for_place(); }
  uint64_t checkpoint_by_ns(UnitId unit) const { return policy_.checkpoint_by_ns(unit); }

  // Writes the channels into the trace that are new.
  void write_channels();

 private:
  bool match(const Call& call, const Endpoint& from, int64_t result, std::span<const uint8_t> content);
  void keep(HeldPayload held);
  void settle();

  TraceWriter& writer_;
  Policy& policy_;
  Channels channels_;
  HeldPayloads held_;
  uint64_t arrivals_ = 0;
  std::optional<Endpoint> unsettled_;  // the last that endpoint() asked for
  // Used again and again:
  std::vector<MatchedPart> parts_;
  Bytes scratch_;
};

}  // namespace redrive
