// Signals on their way to the programs: each is delivered at an event, and what the kernel does to start a handler
// (frame, registers) is recorded. Others that are held get their frames before that handler runs, as from the kernel,
// so the last one runs first.
#pragma once

#include <optional>

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/settings/recorder_limits.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/missing_memory.h"

namespace redrive {

class Findings;
class ThreadControl;
class Intervals;
class GateStops;
class TrapAnswers;
class ForcedSignals;
class CheckpointCopies;
class Ends;
class Turns;
class StopHandler;

class SignalDelivery {
 public:
  SignalDelivery(Tracer& tracer, const RecorderLimits& limits, Findings& findings, ThreadControl& control,
                 Intervals& intervals, GateStops& gate_stops, TrapAnswers& traps, ForcedSignals& forced,
                 CheckpointCopies& copies, Ends& ends, Turns& turns, StopHandler& handler)
      : tracer_(tracer),
        limits_(limits),
        findings_(findings),
        control_(control),
        intervals_(intervals),
        gate_stops_(gate_stops),
        traps_(traps),
        forced_(forced),
        copies_(copies),
        ends_(ends),
        turns_(turns),
        handler_(handler) {}

  // A thread has stopped because a signal is about to be delivered to it.
  void handle(Thread& thread, int signal);
  // The thread's group stops, and it is the thread's turn to stop, unless the group continues already. The thread gives
  // up the baton, because threads of the group that wait for it need it to stop as well; and if the thread is alone,
  // others may join its unit meanwhile, or write into its memory. Others in the unit continue. After SIGCONT, each
  // waits for the baton again.
  void stop_with_group(Thread& thread);
  // Delivers the signal, and records what the kernel does to start a handler. `where`: a SignalPoint.
  void deliver(Thread& thread, int signal, const user_regs_struct& regs, uint64_t where,
               const std::optional<MissingMemory>& missing = std::nullopt);
  // Sends the thread a signal that an instruction of its own has caused, if a handler is to see it now; else the kernel
  // would end the process.
  bool raise_caught(Thread& thread, const siginfo_t& info);
  // At an event: raises held signals. True if one of them is delivered when the thread runs on.
  bool raise_held(Thread& thread);
  // A thread ends before the signals that were held for it came. Those that were sent to its process go to another
  // thread.
  void pass_on_held(Thread& thread);

 private:
  bool ends_step(Thread& thread, const user_regs_struct& regs);
  void ignore(Thread& thread, int signal);
  void forget_stops(const Process& process);

  Tracer& tracer_;
  const RecorderLimits& limits_;
  Findings& findings_;
  ThreadControl& control_;
  Intervals& intervals_;
  GateStops& gate_stops_;
  TrapAnswers& traps_;
  ForcedSignals& forced_;
  CheckpointCopies& copies_;
  Ends& ends_;
  Turns& turns_;
  StopHandler& handler_;
};

// Whether a process with these masks does nothing about this signal.
bool is_ignored(const SignalMasks& masks, int signal);

}  // namespace redrive
