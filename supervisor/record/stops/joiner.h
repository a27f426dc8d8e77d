// Units that come to share writable memory become one: from then on one thread of all of them runs at a time, and a
// checkpoint of all begins the interval. (Processes that share memory by fork are in one unit from birth.)
#pragma once

#include "logstore/trace.h"
#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Intervals;
class Ends;
class Placer;
class Turns;

class Joiner {
 public:
  Joiner(Tracer& tracer, TraceWriter& writer, Intervals& intervals, Ends& ends, Placer& placer, Turns& turns)
      : tracer_(tracer), writer_(writer), intervals_(intervals), ends_(ends), placer_(placer), turns_(turns) {}

  // The unit to wait for so that this one and the other become one: the other may itself be frozen, to become part of a
  // third. Null if that is this one, which absorbs the other at its next event; until then the other does not run.
  static Unit* join_target(const Unit& unit, Unit* other);
  // Freezes the thread's unit until `target`, which is not frozen, is at an event. Then the thread's stop is handled
  // (again).
  void join_unit(Thread& thread, Thread::Ready ready, Unit& target, const std::string& object);
  // A unit that has ended does not become part of another one.
  static void leave_join(Unit& unit);
  // The units that wait for this one become part of it, together with those that wait for them.
  void absorb(Unit& unit);

 private:
  Tracer& tracer_;
  TraceWriter& writer_;
  Intervals& intervals_;
  Ends& ends_;
  Placer& placer_;
  Turns& turns_;
};

}  // namespace redrive
