// What a stop of a tracee means: finds the part that handles it.
#pragma once

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/recorded.h"
#include "supervisor/record/tracees/tracee.h"
#include "supervisor/tier/gate_arena.h"

namespace redrive {

class Tracees;
class ThreadControl;
class CheckpointCopies;
class Checkpointer;
class FullRings;
class ServedCalls;
class GateStops;
class CodePatching;
class OutsideChanges;
class SignalDelivery;
class TrapAnswers;
class LoopHandover;
class Preempter;
class Births;
class Programs;
class Ends;
class Turns;
class StoppedCalls;
class WokenCalls;

class StopHandler {
 public:
  StopHandler(Tracer& tracer, GateArena* arena, Tracees& tracees, ThreadControl& control, CheckpointCopies& copies,
              Checkpointer& checkpointer, ServedCalls& served, FullRings& full_rings, GateStops& gate_stops,
              CodePatching& patching, OutsideChanges& outside, SignalDelivery& signals, TrapAnswers& traps,
              Preempter& preempter, LoopHandover& loops, Births& births, Programs& programs, Ends& ends, Turns& turns,
              StoppedCalls& stopped_calls, WokenCalls& woken)
      : tracer_(tracer),
        arena_(arena),
        tracees_(tracees),
        control_(control),
        copies_(copies),
        checkpointer_(checkpointer),
        served_(served),
        full_rings_(full_rings),
        gate_stops_(gate_stops),
        patching_(patching),
        outside_(outside),
        signals_(signals),
        traps_(traps),
        preempter_(preempter),
        loops_(loops),
        births_(births),
        programs_(programs),
        ends_(ends),
        turns_(turns),
        stopped_calls_(stopped_calls),
        woken_(woken) {}

  // The record loop has taken the stop from the kernel.
  void handle(const Stopped& stopped) EXCLUDES(recorded);
  // The stop came while another one is being handled.
  void handle_amid(const Stopped& stopped);
  // Not for the end of a thread or the beginning of a program, which may be those of a thread with another number.
  void handle(Thread& thread, const Stop& stop);
  // A thread has come out of its call.
  void syscall_exit(Thread& thread);

 private:
  void group_stop(Thread& thread, int signal) REQUIRES(recorded);
  void interrupted(Thread& thread) REQUIRES(recorded);
  void syscall_entry(Thread& thread) REQUIRES(recorded);
  void end_intruder(const Thread& thread);

  Tracer& tracer_;
  GateArena* arena_;
  Tracees& tracees_;
  ThreadControl& control_;
  CheckpointCopies& copies_;
  Checkpointer& checkpointer_ GUARDED_BY(recorded);
  ServedCalls& served_;
  FullRings& full_rings_;
  GateStops& gate_stops_ GUARDED_BY(recorded);
  CodePatching& patching_ GUARDED_BY(recorded);
  OutsideChanges& outside_ GUARDED_BY(recorded);
  SignalDelivery& signals_ GUARDED_BY(recorded);
  TrapAnswers& traps_ GUARDED_BY(recorded);
  Preempter& preempter_ GUARDED_BY(recorded);
  LoopHandover& loops_ GUARDED_BY(recorded);
  Births& births_ GUARDED_BY(recorded);
  Programs& programs_ GUARDED_BY(recorded);
  Ends& ends_ GUARDED_BY(recorded);
  Turns& turns_ GUARDED_BY(recorded);
  StoppedCalls& stopped_calls_ GUARDED_BY(recorded);
  WokenCalls& woken_;
};

}  // namespace redrive
