// Lets threads of a re-driven unit run, each to its next stop, and knows how long it may take.
#pragma once

#include <sys/ptrace.h>

#include <string>

#include "interceptors/instruction_kind.h"
#include "supervisor/replay/cpu_patience.h"
#include "supervisor/replay/redriven_unit.h"
#include "supervisor/replay/unit_gates.h"

namespace redrive {

class Probe;

class ThreadRunner {
 public:
  ThreadRunner(RedrivenUnit& unit, const UnitGates& gates, uint64_t recorded_ns)
      : unit_(unit), gates_(gates), patience_(recorded_ns) {}

  // Runs a stopped thread to its next stop, whose registers it then has, unless it is there already. `awaited`: in a
  // search, what is to stop it; the thread is then overdue once the program has overwritten that.
  ThreadStop run(RedrivenThread& thread, const Probe* awaited = nullptr);
  // Has a thread whose process is without a tier execute the instruction where it stands, a repeated one whole. False
  // if something else has stopped it.
  bool step(RedrivenThread& thread, const InstructionAt& instruction);
  // The same as run(), but leaves the thread there for the next caller.
  ThreadStop run_ahead(RedrivenThread& thread);
  // The thread has stopped at a call that no recording has, because the recorder's filter answers it unseen: so it is
  // answered. False if it is another one.
  bool refuse_foreign(RedrivenThread& thread) const;
  // What a report says about where it came to.
  std::string came_to(const RedrivenThread& thread, ThreadStop stop) const;

  // All stops from now on are one search of this thread's process.
  void begin_search(const RedrivenThread& thread);
  void end_search() { patience_.end_search(); }
  std::string patience() const { return patience_.text(); }

  // Whether a process of the unit was killed from outside.
  bool was_killed() const { return killed_ || unit_.was_killed(); }

 private:
  bool run_to_trap(RedrivenThread& thread, __ptrace_request how);
  bool is_overdue(const RedrivenThread& thread, const Probe* awaited);

  RedrivenUnit& unit_;
  const UnitGates& gates_;
  CpuPatience patience_;
  uint64_t stops_ = 0;   // of all threads, so far
  bool killed_ = false;  // while a thread was waited for
};

}  // namespace redrive
