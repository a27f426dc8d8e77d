// System calls of a re-driven unit that stop: what each asks for is compared with its event, and what the kernel did is
// done in its place.
#pragma once

#include <optional>
#include <vector>

#include "supervisor/replay/call_watch.h"
#include "supervisor/replay/end_verification.h"
#include "supervisor/replay/event_effects.h"
#include "supervisor/replay/redriving.h"
#include "supervisor/replay/shown_output.h"
#include "supervisor/replay/site_patcher.h"
#include "supervisor/replay/unit_messages.h"

namespace redrive {

class CallReplay {
 public:
  // `verification`: null if no end is compared. `shows_output`: what the unit writes to its standard output is shown.
  // `watch`: may be null.
  CallReplay(const Redriving& redriving, MessageStore& store, UnitMessages& messages, EventEffects& effects,
             SitePatcher& patcher, EndVerification* verification, bool shows_output, CallWatch* watch);

  // Makes all calls that the event stands for, except the first `made`.
  Result<Step> make(RedrivenThread& thread, EventIndex index, const Event& event, uint64_t made);
  // The thread enters a call; a call that ends the thread has no exit.
  Result<Step> enter(RedrivenThread& thread, EventIndex index, const Event& event);
  // It comes out of the call that it is in.
  Result<Step> leave(RedrivenThread& thread, EventIndex index, const Event& event);

 private:
  std::optional<std::vector<Span>> equal_inputs(RedrivenThread& thread, const Event& event, const SyscallRow& row);
  Result<Step> end(RedrivenThread& thread, EventIndex index, const Event& event, const SyscallRow* row);
  Result<void> change_memory(RedrivenThread& thread, const Event& call, Special special);

  const Redriving& redriving_;
  MessageStore& store_;
  UnitMessages& messages_;
  EventEffects& effects_;
  SitePatcher& patcher_;
  EndVerification* const verification_;
  std::optional<ShownOutput> output_;
  CallWatch* const watch_;
  Bytes scratch_;
};

}  // namespace redrive
