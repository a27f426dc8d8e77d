// Stops in the middle of calls that are being served inside a program. A call that has done nothing yet is left to a
// stop; one that sleeps gives up the baton; one that was cut short ends like a call that has stopped.
//
// If the slot was taken from a sleeper that had yet to enter the kernel, its call ends as if the kernel had found a
// signal first (ERESTARTNOINTR). If a checkpoint needs a sleeper's extended registers, the sleeper is interrupted, and
// the kernel then continues its sleep. Of the calls that are cut short, only those are made anew that the tier had
// tried without their timeout, or that have failed although nothing has woken them (recvmmsg(2)).
#pragma once

#include <optional>

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/messages/messages.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class ThreadControl;
class ServedCalls;
class SignalDelivery;
class WokenCalls;
class ForeignMemory;
class LoopHandover;
class Turns;
class StoppedCalls;

class GateStops {
 public:
  GateStops(Tracer& tracer, Messages& messages, GateArena* arena, ThreadControl& control, ServedCalls& served,
            SignalDelivery& signals, WokenCalls& woken, ForeignMemory& foreign, LoopHandover& loops, Turns& turns,
            StoppedCalls& stopped_calls)
      : tracer_(tracer),
        messages_(messages),
        arena_(arena),
        control_(control),
        served_(served),
        signals_(signals),
        woken_(woken),
        foreign_(foreign),
        loops_(loops),
        turns_(turns),
        stopped_calls_(stopped_calls) {}

  // At a stop in the middle of a served call: if the call has done nothing yet, it is left to a stop.
  void leave_gate(Thread& thread);
  // The thread has faulted there, because memory that the call names cannot be read. A call that was made ends like one
  // that stops, with the kernel's result; any other is left to a stop, so that the kernel says so. False if the program
  // has written into the memory that it shares with the recorder.
  bool leave_after_fault(Thread& thread);
  // The send that was about to be served is left to a stop.
  void cancel_pending(Thread& thread);
  // Another thread of the unit could run: it gets the baton if the holder sleeps in a served call. From then on the
  // holder's call is like those that stop: its entry is logged, and it will have to wait for the baton.
  void take_from_sleeper(Unit& unit);
  // Checks from time to time whether a thread sleeps in a served call, and notes since when, but never too early a
  // time.
  void note_sleep(Thread& thread);
  // A served call that transfers bytes was cut short by what the program does not see: the rest is transferred, as by a
  // call that stops (WokenCalls). False if the thread is not in such a call. It does not have the baton any more.
  bool goes_on(Thread& thread);
  // A served call was cut short: it ends like one that stops, with the kernel's result, so that the kernel enters it
  // again or turns it into EINTR as it would have. `signal`: the one that the thread is stopped for, which is delivered
  // then; 0: none. False if the thread is not in such a call. The thread has the baton, or waits for it from now on.
  bool end_cut_short(Thread& thread, int signal);
  // A thread that the baton was taken from in its sleep reports the result of its call.
  void woke(Thread& thread, const user_regs_struct& stopped);
  // A signal or the recorder has stopped such a thread. If it `comes_out`, its call ends; otherwise the kernel
  // continues the call, unless it is one of those that end then, which is entered again.
  void disturb(Thread& thread, bool comes_out, int signal = 0);
  // The thread was killed in the gate: the call that it was about to make; nothing if it has done nothing after its
  // last event, or if it was no call. One that may have been made becomes one that stops, and does not return: others
  // may find what it has written. `regs`: as they are in the gate.
  std::optional<Address> call_at_end(Thread& thread, const user_regs_struct& regs);
  // A served call ended while a stop was wanted: the thread is right after it. Or it waits in a loop.
  void at_boundary(Thread& thread, user_regs_struct regs);

 private:
  static void undo_writes(const Process& process);
  bool open_in_slot(Thread& thread);
  void set_result(Thread& thread, int64_t result);
  bool is_in_call(const Thread& thread, user_regs_struct regs) const;
  bool may_be_making(const Thread& thread, const user_regs_struct& regs) const;
  std::optional<int64_t> cut_short_with(const Thread& thread, const user_regs_struct& regs) const;

  Tracer& tracer_;
  Messages& messages_;
  GateArena* arena_;
  ThreadControl& control_;
  ServedCalls& served_;
  SignalDelivery& signals_;
  WokenCalls& woken_;
  ForeignMemory& foreign_;
  LoopHandover& loops_;
  Turns& turns_;
  StoppedCalls& stopped_calls_;
};

}  // namespace redrive
