// What the parts of a replay have in common: the interval that is re-driven, and the unit that executes it.
#pragma once

#include "logstore/trace.h"
#include "supervisor/plan/plan.h"
#include "supervisor/replay/redriven_unit.h"
#include "supervisor/replay/step.h"
#include "supervisor/replay/thread_runner.h"
#include "supervisor/replay/unit_gates.h"

namespace redrive {

struct Redriving {
  const Trace& trace;
  const PlannedInterval what;
  RedrivenUnit& unit;
  UnitGates& gates;
  ThreadRunner& runner;
  const FilePath file_path;  // of the trace's files

  void forget_process(ProcessSerial process) const {
    unit.forget_process(process);
    gates.forget(process);
  }
};

inline Difference difference(const RedrivenThread& thread, EventIndex event, std::string expected, std::string found) {
  return {event, thread.serial, std::move(expected), std::move(found)};
}
inline Step diverged(const RedrivenThread& thread, EventIndex event, std::string expected, std::string found) {
  return Step::diverged(difference(thread, event, std::move(expected), std::move(found)));
}

}  // namespace redrive
