// Re-drives one interval of one unit: restores its checkpoint in stubs and executes its code again, answering every
// event from the trace.
//
// All of an object's life happens on one thread, which is the tracer of its stubs. Tracer and tracees stay on one
// processor: stops between processors cost ten times as much. What the execution asks for must be what the recording
// holds; the first difference is a Divergence.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>

#include "supervisor/replay/balancer.h"
#include "supervisor/replay/call_replay.h"
#include "supervisor/replay/checkpoints_due.h"
#include "supervisor/replay/end_verification.h"
#include "supervisor/replay/event_effects.h"
#include "supervisor/replay/event_replay.h"
#include "supervisor/replay/message_store.h"
#include "supervisor/replay/preparation.h"
#include "supervisor/replay/redriving.h"
#include "supervisor/replay/ring_batch.h"
#include "supervisor/replay/site_patcher.h"
#include "supervisor/replay/stopped_unit.h"
#include "supervisor/replay/unit_messages.h"
#include "supervisor/replay/wanted_payloads.h"

namespace redrive {

struct Divergence {
  UnitId unit = 0;
  IntervalIndex interval = 0;
  EventIndex event = 0;
  std::string expected;
  std::string found;
  std::string stack;        // one frame a line
  std::string disassembly;  // around the instruction pointer
};

struct ReplayerOptions {
  bool verify = false;   // compare with the next checkpoint at the end
  bool output = false;   // copy what it writes to descriptors 1 and 2 to ours
  Halt* halt = nullptr;  // where it stops on its way; null: nowhere
  Preparation* preparation = nullptr;
  CallWatch* watch = nullptr;       // sees what calls read
  RestoreEngine* engine = nullptr;  // restores the image that it starts from; null: restore() does it itself
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

class Replayer {
 public:
  Replayer(const Trace& trace, const PlannedInterval& what, std::optional<EventRef> birth, MessageStore& store,
           Seat& seat, ReplayTier* tier, ReplayerOptions options);  // no tier: every call stops
  Replayer(const Replayer&) = delete;
  Replayer& operator=(const Replayer&) = delete;

  struct Outcome {
    std::optional<Divergence> divergence;
    bool verified = false;   // compared with the next checkpoint, and equal
    std::string unverified;  // why that is not known, if it was asked for and nothing diverged
    double seconds = 0;      // from `started` until the last event, verification not included
  };
  // An Error: the interval could not be re-driven (a damaged trace, no memory, another interval of the set failed).
  Result<Outcome> run();

 private:
  using Stood = std::variant<Halt::Then, Difference>;

  Result<Outcome> run_to_end();
  Result<void> begin();
  Result<void> restore_start();
  Result<Step> execute(EventIndex first, EventIndex last);
  Result<Step> prepare_before(EventIndex index, const Event& event);
  Result<void> take_payloads();
  Result<Step> visit(EventIndex index, const Event& event);
  Result<Step> receive_in_turn(EventIndex index, const Event& event);
  Result<Step> step(EventIndex index, const Event& event, uint64_t made = 0);
  Result<Step> run_batch(bool onward);
  Result<Stood> stand(EventIndex index);
  std::optional<siginfo_t> fault_of(ThreadSerial serial) const;
  Result<UnitState> state_of(const StoppedUnit& stopped) const;
  Result<Divergence> report(const Difference& difference);

  const std::optional<EventRef> birth_;
  MessageStore& store_;
  const Seat& seat_;
  const ReplayerOptions options_;
  // The unit, and what runs it.
  RedrivenUnit unit_;
  UnitGates gates_;
  ThreadRunner runner_;
  const Redriving redriving_;
  // What its events need.
  UnitMessages messages_;
  SitePatcher patcher_;
  EventEffects effects_;
  std::optional<EndVerification> verification_;
  CallReplay calls_;
  EventReplay events_;
  RingBatch batch_;
  // What a preparation takes.
  std::optional<CheckpointsDue> due_;
  WantedPayloads wanted_payloads_;
  // How far the execution has come.
  const Event* previous_ = nullptr;  // the event before the one that is visited; null: it must be read again
  uint64_t executed_ = 0;
};

}  // namespace redrive
