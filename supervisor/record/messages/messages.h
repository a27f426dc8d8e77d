// Messages between recorded processes: the owner of the channels, of the policy, and of the payloads that it has not
// decided about.
//
// A send is captured at its call's entry, because its bytes may be received before the call ends. A receive is matched
// at its exit: the bytes that it brought are either a message, whose payload stays in the event if the policy says so,
// or input, which is always logged. What is behind a descriptor is remembered with the thread's descriptor table until
// the descriptor is closed.
//
// This class knows nothing about threads and units. It is told what a call is and where its event lies, in the order of
// the events.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "interceptors/channels.h"
#include "interceptors/syscall_table.h"
#include "logstore/policy/policy.h"
#include "logstore/trace.h"
#include "supervisor/record/code/recorded_gate.h"
#include "supervisor/record/kernel/interval_clock.h"
#include "supervisor/record/messages/held_payloads.h"
#include "supervisor/record/messages/talks.h"

namespace redrive {

class Triggers;

// What the receivers of a send must know about it.
struct SendInfo {
  EventRef event;
  Tag tag;
};

// What the current call of a thread sends.
struct Sending {
  SendToken send;       // null: nothing that is to be matched
  bool unheld = false;  // the call sends more than is held for matching
  Endpoint to;
  std::vector<uint64_t> datagrams;  // the lengths of the datagrams

  // Call this when another call begins.
  void clear() { send.reset(), unheld = false; }
};

class Messages {
 public:
  // Both must outlive it. `independent`: the policy is not asked where checkpoints are cheap.
  Messages(TraceWriter& writer, Policy& policy, bool independent = false);

  // What has to be known about a call that sends or receives, or that makes or closes descriptors.
  struct Call {
    const SyscallRow& row;
    const std::array<uint64_t, 6>& args;
    const Memory& memory;  // at its entry or exit
    // The caller's descriptor table, the pidfd by which its descriptors can be copied, and its tier; null if nothing is
    // served there.
    FdCache& descriptors;
    int pidfd = -1;
    RecordedGate* gate = nullptr;
  };
  // Where a call's event lies.
  struct Place {
    UnitId unit = 0;
    EventIndex event = 0;
    IntervalClock& clock;  // of the unit
  };

  // ---- Descriptors
  // What is behind the descriptor in an argument, valid until the next call; null if that cannot be told.
  const Endpoint* endpoint(const Call& call, int fd_arg);
  // Call this at the exit of a call that stops. If it has made a connection, finds out between whom: once both ends
  // have ended it (shutdown(2)), nobody can tell, and that may be before the connection is used in a call that stops.
  void note_connection(const Call& call, int64_t result);
  // Forgets the descriptors that the call closes, here and in the tables of the code inside the tracee.
  static void forget_closed(const Call& call);
  // Notes the descriptors that a served call has closed and made. The code inside the tracee has noted them already.
  void note_served(const Call& call, const gate::Record& record);

  // ---- Events
  // Call this at the entry of a send. `inputs` is what it reads. Fills in the event's send.
  void begin_send(const Call& call, const Place& place, const std::vector<Span>& inputs, Sending& sending,
                  Event& event);
  // Call this at the exit of any call.
  void end_send(Sending& sending, int64_t result);
  // What the exit of a call means for the unit.
  struct Received {
    bool message = false;
    bool checkpoint_wanted = false;  // the policy wanted a checkpoint before the message
  };
  // Call this at the exit of any call. What the event has written as a message becomes a message if its sends are
  // found, and input otherwise.
  Received receive(const Call& call, const Place& place, int64_t result, Event& event);
  // Call this when a child is born in a unit of its own and the first interval there has begun. A birth is a message
  // too. Returns whether it is to be kept, by an image.
  bool keeps_birth(UnitId parent, uint64_t at_ns, UnitId child);

  // ---- Intervals, and the policy's wishes
  void begin_interval(UnitId unit, uint64_t ended_ns);
  // A checkpoint that was due was skipped: the interval goes on until this time of it at least.
  void note_skipped(UnitId unit, uint64_t until_ns) { policy_.on_skipped(unit, until_ns); }
  // How long it takes to restore what its interval starts from, and how much memory that is, as far as it is known.
  void note_restore(UnitId unit, uint64_t restore_ns, uint64_t memory_bytes) {
    policy_.on_restore_known(unit, restore_ns, memory_bytes);
  }
  // Call this when no event of the unit follows. `ended_ns`: the length of its last interval.
  void end_unit(UnitId unit, uint64_t ended_ns);
  bool wants_checkpoint(UnitId unit, uint64_t at_ns) { return !independent_ && policy_.wants_checkpoint(unit, at_ns); }
  bool looks_for_place() const { return !independent_ && policy_.looks_for_place(); }
  uint64_t checkpoint_by_ns(UnitId unit) const { return policy_.checkpoint_by_ns(unit); }

  // From now on, it is told what comes and what goes on streams.
  void watch_replies(Triggers& triggers) { triggers_ = &triggers; }

  // From now on, it is counted who talks to whom.
  void count_talks() { talks_.emplace(); }
  // Null if that is not counted.
  const Talks* talks() const { return talks_ ? &*talks_ : nullptr; }

  // Writes the new channels, or all that are open, into the trace.
  void write_channels();
  void write_open_channels();
  // Keeps what is held for such receivers, whatever the policy decides later.
  void keep_held(const std::function<bool(EventRef receiver)>& is_wanted);

 private:
  const Endpoint* endpoint_of(const Call& call, int fd);
  void note_made(const Call& call, const gate::Record& record);
  void note_pair(const Call& call);
  bool from_another_volume(UnitId receiver) const;
  bool match(const Call& call, const Endpoint& from, int64_t result, std::span<const uint8_t> content);
  void keep(HeldPayload held);
  void settle();

  TraceWriter& writer_;
  Policy& policy_;
  const bool independent_;
  Channels channels_;
  HeldPayloads held_;
  uint64_t arrivals_ = 0;
  std::optional<Talks> talks_;
  Triggers* triggers_ = nullptr;
  std::optional<Endpoint> unsettled_;  // the last one that endpoint() asked the kernel for
  // Reused memory:
  std::vector<MatchedPart> parts_;
  Bytes scratch_;
};

}  // namespace redrive
