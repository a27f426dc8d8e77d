// Events of a re-driven unit that are executed at a stop, each by its kind.
#pragma once

#include "supervisor/replay/call_replay.h"
#include "supervisor/replay/end_verification.h"
#include "supervisor/replay/event_effects.h"
#include "supervisor/replay/redriving.h"

namespace redrive {

class EventReplay {
 public:
  // `verification`: null if no end is compared.
  EventReplay(const Redriving& redriving, SitePatcher& patcher, CallReplay& calls, EventEffects& effects,
              EndVerification* verification)
      : redriving_(redriving), patcher_(patcher), calls_(calls), effects_(effects), verification_(verification) {}

  // Executes it. `made`: how many of the calls that it stands for were made already.
  Result<Step> replay(EventIndex index, const Event& event, uint64_t made);
  // Lets the thread that makes the event come to the instruction that makes it, unless the event comes right after the
  // thread's last one. The thread is found there when the event is executed.
  Result<Step> arrive(EventIndex index, const Event& event);

 private:
  void own_code_to_step(const RedrivenThread& thread, const Event& event) const;
  Result<Step> replay_signal(RedrivenThread& thread, EventIndex index, const Event& event);
  Result<Step> replay_trap(RedrivenThread& thread, EventIndex index, const Event& event);
  Result<Step> replay_preemption(RedrivenThread& thread, EventIndex index, const Event& event);

  const Redriving& redriving_;
  SitePatcher& patcher_;
  CallReplay& calls_;
  EventEffects& effects_;
  EndVerification* const verification_;
};

// Says that there is no thread to make the event.
Step no_thread(EventIndex index, const Event& event);

}  // namespace redrive
