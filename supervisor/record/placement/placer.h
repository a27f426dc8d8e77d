// Where units run, and where programs find that they run (placement.h, seen_processors.h).
#pragma once

#include "supervisor/record/kernel/tracer.h"
#include "supervisor/record/placement/placement.h"
#include "supervisor/record/placement/precedence.h"
#include "supervisor/record/placement/seen_processors.h"
#include "supervisor/record/tracees/tracee.h"

namespace redrive {

class Tracees;

class Placer {
 public:
  Placer(Tracer& tracer, Placement& placement, SeenProcessors& processors, Tracees& tracees)
      : tracer_(tracer), placement_(placement), processors_(processors), tracees_(tracees) {}

  // Sends units that compute to other processors, and calls back those that stop or sleep often.
  void place_units();
  // Places the unit of a new program: it stops often, but others may need home all the time.
  void place_program(Unit& unit) const;
  // Sends the unit's threads where the unit runs.
  void place(const Unit& unit) const;
  // On processors that do not trap cpuid: the unit has got memory in which it can write code and execute it, which may
  // ask for the processor's number. It runs on the first processor for a while.
  void place_writer_of_code(Unit& unit) const;
  // Whether several units computed when that was last looked at.
  bool crowded() const { return crowded_; }
  // The thread has asked where a thread may run, or runs, and the kernel has answered. Returns the call's result.
  int64_t answer_processors(const Thread& thread, int64_t result);
  // The thread has moved a thread to other processors, as far as the kernel lets that run there. Returns the call's
  // result.
  int64_t move_to_processors(const Thread& thread, int64_t result);

 private:
  Tracer& tracer_;
  Placement& placement_;
  SeenProcessors& processors_;
  Tracees& tracees_;
  Precedence precedence_;
  Clock::time_point placed_{};  // when the units' places were last looked at
  bool crowded_ = false;        // several of them computed then
};

}  // namespace redrive
